"""One-line mutants of rlvr_jax/models/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_ALL_BIASES = (
    "tests/models/test_families.py::"
    "test_logits_are_hugging_faces_beyond_any_window[left-False-llama_yarn]"
)
_HUB = "tests/models/test_huggingface.py"
_KERNELS = "tests/models/test_kernels.py"

MUTANTS = [
    *rows(
        "rlvr_jax/models/huggingface/tokenizer.py",
        ("tests/models/test_save_tokenizer.py",),
        converts_any_model=("if not _agree(", "if False and not _agree("),
        bytes_are_texts=(
            "TokenType.BYTE if tokenizer.is_byte(token)",
            "TokenType.NORMAL if tokenizer.is_byte(token)",
        ),
        template_is_lost=(
            "    if chat_template:\n        (directory",
            "    if False:\n        (directory",
        ),
        words_in_reverse=("enumerate(words)", "enumerate(words[::-1])"),
    ),
    *rows(
        "rlvr_jax/run/load.py",
        ("tests/run/test_trainable.py",),
        tokenizer_is_left_out=(
            "        step,\n        tokenizer,",
            "        step,\n        None,",
        ),
    ),
    *rows(
        "rlvr_jax/models/block.py",
        (_ALL_BIASES,),
        leaves_out_the_bias_of_out=("if self.config.out_bias:", "if False:"),
        activates_before_the_bias=(
            "gate_BTF = add_bias(gate_BTF, self.gate_bias[...])",
            "gate_BTF = gate_BTF",
        ),
    ),
    *rows(
        "rlvr_jax/models/distribution.py",
        ("tests/models/test_distribution.py",),
        draws_from_23_bits=('mode="high"', 'mode="low"'),
        one_noise_for_both_choices=(
            "logits_CW + gumbel_CX[:, N:]",
            "logits_CW + gumbel_CX[:, :W]",
        ),
        blocks_of_equal_weight=(
            "block_logits_CN + gumbel_CX",
            "0 * block_logits_CN + gumbel_CX",
        ),
        draws_behind_the_last_token=(
            "jnp.where(token_CW < V, logits_CW, _EXCLUDED_LOGIT)",
            "logits_CW",
        ),
    ),
    *rows(
        "rlvr_jax/models/families/base.py",
        ("tests/models/test_rope.py",),
        ends_with_the_context_before_yarn=(
            "max(context, int(factor * original))",
            "context",
        ),
        ends_with_the_context_after_yarn=(
            "max(context, int(factor * original))",
            "int(factor * original)",
        ),
        mixes_magnitudes_up=(
            "yarn_magnitude(factor, above) / yarn_magnitude(factor, below)",
            "yarn_magnitude(factor, below) / yarn_magnitude(factor, above)",
        ),
        writes_a_runs_room_as_dynamics_context=(
            "config.rope_original_max_position if is_dynamic else",
            "config.max_seq_len if is_dynamic else",
        ),
    ),
    *rows(
        "rlvr_jax/models/gguf/config.py",
        ("tests/models/gguf/test_convert.py",),
        forgets_llama3_rope=(
            "if tensor is None:\n        return {}",
            "if True:\n        return {}",
        ),
        gemma3_without_local_base=(
            '"rope.freq_base_swa", float, _GEMMA3_LOCAL_THETA',
            '"rope.freq_base_swa", float, fields["rope_theta"]',
        ),
    ),
    *rows(
        "rlvr_jax/models/gguf/config.py",
        ("tests/models/gguf/test_refusals.py",),
        drops_settings=("if key not in _NOTES and", "if key in _MUST_BE and"),
    ),
    *rows(
        "rlvr_jax/models/gguf/convert.py",
        ("tests/models/gguf/test_convert.py",),
        leaves_half_a_directory=("        shutil.rmtree(partial)\n", ""),
    ),
    *rows(
        "rlvr_jax/models/gguf/pre_tokenizers.py",
        ("tests/models/gguf/test_tokens.py",),
        keeps_digits_together=("steps=(_DIGITS,)", "steps=()"),
        composes_no_accents=(', normalizer={"type": "NFC"}', ""),
    ),
    *rows(
        "rlvr_jax/models/gguf/reader.py",
        ("tests/models/gguf/test_refusals.py",),
        takes_a_cut_file=("if t.start + t.nbytes > size", "if t.start > size"),
    ),
    *rows(
        "rlvr_jax/models/gguf/tokenizer.py",
        ("tests/models/gguf/test_tokens.py",),
        merges_by_id=("(-scores[ids[token]], ids[token])", "-ids[token]"),
    ),
    *rows(
        "rlvr_jax/models/gguf/weights.py",
        ("tests/models/gguf/test_convert.py",),
        stored_order_of_rotary_rows=(
            "if not architecture.rope_interleaved or not count",
            "if True",
        ),
        norms_stay_plus_one=("1.0 if architecture", "0.0 if architecture"),
    ),
    *rows(
        "rlvr_jax/models/hooks.py",
        ("tests/models/test_hooks.py",),
        stream_without_mlp=("middle_BTD + mlp_BTD", "middle_BTD"),
        mlp_reads_before=("block.mlp_output(middle_BTD)", "block.mlp_output(x_BTD)"),
        one_type_of_layer=("contexts[layer_types[layer]]", "contexts[layer_types[0]]"),
        always_the_first=(
            "dynamic_index_in_dim(w, layer,",
            "dynamic_index_in_dim(w, 0,",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/config.py",
        ("tests/models/test_rope.py",),
        one_theta_whether_scaled_or_not=(
            'if config.rope_scaling == "none":  #',
            "if True:  #",
        ),
        a_context_beside_rope_is_not_seen=(
            "    text_config.standardize_rope_params()\n",
            "",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/load.py",
        ("tests/models/test_huggingface.py",),
        takes_nan=("    if names:\n        raise", "    if False:\n        raise"),
    ),
    *rows(
        "rlvr_jax/models/huggingface/match.py",
        ("tests/models/test_match.py",),
        overrules_what_is_given=("if name in _OWN or value ==", "if value or value =="),
        longer_than_its_context=("value > theirs.max_seq_len", "value < 0"),
        room_beyond_its_context=(
            "max_seq_len=min(model.max_seq_len, theirs.max_seq_len)",
            "max_seq_len=model.max_seq_len",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/match.py",
        ("tests/models/test_match.py",),
        scans_what_is_not_deep=("_MIN_SCANNED_LAYERS = 16", "_MIN_SCANNED_LAYERS = 15"),
        scans_layers_of_two_types=(
            "and len({*model.layer_types}) == 1",
            "and len({*model.layer_types}) >= 1",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/tied.py",
        ("tests/models/test_tied.py",),
        ties_what_differs=(
            "return dataclasses.replace(config, tie_embeddings=False)\n\n\ndef head",
            "return config\n\n\ndef head",
        ),
        unties_what_is_equal=(
            "    if _are_equal(first, second):\n",
            "    if False:\n",
        ),
        compares_the_first_rows_alone=(
            "for at in range(0, num_rows, step))",
            "for at in range(0, step, step))",
        ),
        remembers_a_file_that_was_replaced=(
            "return status.st_size, status.st_mtime_ns",
            "return status.st_size, 0",
        ),
        rounds_before_it_compares=(
            "other[start:stop].astype(np.float64)",
            "other[start:stop].astype(one[:1].dtype).astype(np.float64)",
        ),
    ),
    *rows(
        "rlvr_jax/models/masks.py",
        ("tests/learn/test_packing.py",),
        segments_that_see_their_neighbors=(
            "mask_UTS = same_UTS & (distance_TS >= 0)[None]",
            "mask_UTS = (same_UTS | True) & (distance_TS >= 0)[None]",
        ),
        positions_that_go_on_from_the_neighbor=(
            "jnp.repeat(starts_P, rows)[:, None] + segments.index",
            "jnp.repeat(starts_P, rows)[:, None] + jnp.arange(T)[None]",
        ),
    ),
    *rows(
        "rlvr_jax/models/masks.py",
        ("tests/sampler/test_slots.py",),
        reads_its_predecessors_cache=(
            "distance_S[None] <= index_B[:, None]",
            "distance_S[None] <= 0 * index_B[:, None] + length",
        ),
    ),
    *rows(
        "rlvr_jax/models/masks.py",
        ("tests/models/test_families.py",),
        decodes_beyond_the_window=(
            "own_mask_BS & (distance_S < config.sliding_window)",
            "own_mask_BS & (distance_S <= config.sliding_window)",
        ),
        decodes_a_prompt_beyond_the_window=(
            "prefix_mask &= prefix_distance_PS < config.sliding_window",
            "prefix_mask &= prefix_distance_PS <= config.sliding_window",
        ),
    ),
    *rows(
        "rlvr_jax/models/parameters.py",
        ("tests/models/test_transformer.py",),
        weights_start_at_scale_1=("config.init_scale * fan_in", "fan_in"),
    ),
    *rows(
        "rlvr_jax/models/parameters.py",
        ("tests/learn/test_bfloat16.py",),
        rows_add_up_in_their_dtype=(
            "jnp.zeros((num_rows, gradient_BTD.shape[-1]), jnp.float32)",
            "jnp.zeros((num_rows, gradient_BTD.shape[-1]), dtype)",
        ),
        biases_add_up_in_their_dtype=("bias.astype(jnp.float32),", "bias,"),
        multiplies_float32_gradients=(
            "gradient = gradient.astype(a.dtype)",
            "gradient = gradient + 0",
        ),
    ),
    *rows(
        "rlvr_jax/models/rope.py",
        ("tests/models/test_rope.py",),
        never_truncates=("if config.rope_truncate:", "if False:"),
        always_truncates=("if config.rope_truncate:", "if True:"),
        ends_with_the_last_pair=("config.head_dim - 1)", "half - 1)"),
        begins_before_the_first_pair=("max(first, 0)", "first"),
        divides_the_fast=(
            "return 1.0 - jnp.clip((pair_I",
            "return jnp.clip((pair_I",
        ),
        scales_own_sliding_layers=('!= "yarn" or local_theta:', '!= "yarn":'),
        forgets_the_magnitude=("return factor * cos_BT1H,", "return cos_BT1H,"),
        ignores_a_given_magnitude=("config.rope_attention_factor or ", ""),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        ("tests/learn/test_packing.py::test_rows_are_packed_where_attention_is_plain",),
        packs_rows_that_devices_split=("and not config.sequence_parallel", ""),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        (f"{_KERNELS}::test_whole_sequences",),
        cudnn_window_is_one_wider=(
            "causal_TS &= distance_TS < inputs.window",
            "causal_TS &= distance_TS <= inputs.window",
        ),
        splash_window_is_one_wider=(
            "band = (inputs.window - 1, 0)",
            "band = (inputs.window, 0)",
        ),
        splash_caps_no_scores=(
            "attn_logits_soft_cap=config.attn_logit_softcap or None,",
            "attn_logits_soft_cap=None,",
        ),
        scale_is_the_head_dims=(
            "(config.query_pre_attn_scalar or config.head_dim) ** -0.5",
            "config.head_dim**-0.5",
        ),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        (f"{_KERNELS}::test_completions_of_a_shared_prompt",),
        rows_read_other_prompts=(
            "rows_BKSH = jnp.repeat(padded_PKSH, G, axis=0)",
            "rows_BKSH = jnp.tile(padded_PKSH, (G, 1, 1, 1))",
        ),
        rows_have_other_prompts_padding=(
            "before_BS = jnp.repeat(_pad(sorted_PS, 1, front=front), G, axis=0)",
            "before_BS = jnp.tile(_pad(sorted_PS, 1, front=front), (G, 1))",
        ),
        offset_forgets_the_padding=("offset = S + front", "offset = S"),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        (f"{_KERNELS}::test_devices_compute_their_rows_and_their_heads",),
        query_heads_read_other_key_heads=(
            "(jnp.repeat(x, R, axis=1) for x in (keys, values))",
            "(jnp.tile(x, (1, R, 1, 1)) for x in (keys, values))",
        ),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        (f"{_KERNELS}::test_cpu_is_plain_unless_told_otherwise",),
        one_token_takes_a_kernel=(
            'if requested == "plain" or length == 1:',
            'if requested == "plain":',
        ),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        (f"{_KERNELS}::test_auto_takes_the_kernel_that_can",),
        cudnn_takes_wide_heads=(
            "config.head_dim % 8 or config.head_dim > 128:",
            "config.head_dim % 8:",
        ),
        cudnn_takes_float32=('if config.compute_dtype != "bfloat16":', "if False:"),
    ),
    *rows(
        "rlvr_jax/models/kernels.py",
        (f"{_KERNELS}::test_auto_takes_no_kernel_for_less_than_a_block",),
        a_whole_block_is_small=(
            "length < _LENGTH_MULTIPLE[kernel]",
            "length <= _LENGTH_MULTIPLE[kernel]",
        ),
    ),
    *rows(
        "rlvr_jax/models/lora.py",
        ("tests/models/test_lora.py",),
        merging_forgets_the_rank=(
            "scale = config.alpha / config.rank",
            "scale = config.alpha",
        ),
        training_ignores_alpha=("alpha=config.alpha,", "alpha=config.rank,"),
        one_key_for_all_matrices=(
            "jax.random.fold_in(key, number)",
            "jax.random.fold_in(key, 0)",
        ),
        a_scaled_by_the_rank=(
            '(1 / 3, "fan_in", "uniform")',
            '(1 / 3, "fan_out", "uniform")',
        ),
        merging_subtracts=("weight_LXY + _weight_delta", "weight_LXY - _weight_delta"),
        merges_into_the_weight_before_quantization=(
            "weight_LXY = _dequantized_weight(product).astype(jnp.float32)",
            "weight_LXY = param[...].reshape(_dequantized_weight(product).shape) + 0.0",
        ),
        one_scale_for_a_whole_column=("math.gcd(_NF4_TILE_SIZE, width)", "width"),
        adapters_have_the_weights_dtype=(
            "param.set_value(param[...].astype(jnp.float32))",
            "param.set_value(param[...])",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/load.py",
        (f"{_HUB}::test_an_export_holds_every_tensor_bit_for_bit",),
        generation_config_is_not_read=(
            "if (directory / GENERATION).is_file():",
            "if False:",
        ),
        completions_end_at_one_token=(
            "return tuple(ids) if isinstance",
            "return tuple(ids[:1]) if isinstance",
        ),
        every_layer_is_the_first=(
            "tensors[mapping.hf_name.format(layer)]",
            "tensors[mapping.hf_name.format(0)]",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/load.py",
        (
            "tests/test_convert.py::test_a_narrow_checkpoint_stays_narrow_and_loses_nothing",
        ),
        mixed_files_are_bfloat16=(
            'if dtypes == {"BF16"} else',
            'if "BF16" in dtypes else',
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/load.py",
        (f"{_HUB}::test_a_checkpoint_that_cannot_be_right_is_refused",),
        takes_infinite_weights=("jnp.isfinite(value).all(", "(~jnp.isnan(value)).all("),
        added_tokens_do_not_count=(
            'ids += [token["id"] for token in tokenizer.get("added_tokens", [])]',
            "ids += []",
        ),
        reads_quantized_weights=("if dtype not in FLOAT_DTYPES:", "if False:"),
        drops_unknown_tensors=(
            "if unexpected := sorted(set(tensors) - needed):",
            "if unexpected := sorted(set()):",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/load.py",
        (f"{_HUB}::test_a_tokenizer_may_have_every_token_of_the_embedding",),
        refuses_a_full_vocabulary=(
            "max(ids, default=-1) + 1) > vocab_size",
            "max(ids, default=-1) + 1) >= vocab_size",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/tensors.py",
        (f"{_HUB}::test_constants_copies_and_parts_that_see_are_left_aside",),
        reads_rotary_constants=("        or name.endswith(_IGNORED_SUFFIX)\n", ""),
    ),
    *rows(
        "rlvr_jax/models/huggingface/tensors.py",
        (f"{_HUB}::test_a_tensor_that_only_the_index_names_is_missed",),
        lost_tensors_are_not_missed=(
            "if lost := sorted(set(weight_map) - stored_names):",
            "if lost := sorted(set()):",
        ),
    ),
    *rows(
        "rlvr_jax/models/huggingface/save.py",
        ("tests/models/test_huggingface.py",),
        the_context_is_the_runs=(
            "max(settings[_CONTEXT], extra[_CONTEXT])",
            "settings[_CONTEXT]",
        ),
    ),
    *rows(
        "rlvr_jax/models/truncation.py",
        ("tests/models/test_truncation.py",),
        keeps_the_last_layers=("w[:count]", "w[-count:]"),
        keeps_all_layers=("lambda w: w[:count]", "lambda w: w"),
        keeps_more_layers_than_there_are=("count > policy", "-count > policy"),
        cuts_the_policy_itself=("first = nnx.clone(policy)", "first = policy"),
    ),
]

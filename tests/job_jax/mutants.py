"""One-line mutants of job_jax/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_BACKGROUND = ("tests/job_jax/trackers/test_background.py",)
_FLAGS = ("tests/job_jax/test_flags.py",)
_JOINT = ("tests/job_jax/buckets/test_joint.py",)
_MIRROR = ("tests/job_jax/buckets/test_mirror.py",)

MUTANTS = [
    *rows(
        "job_jax/buckets/commits.py",
        _MIRROR,
        reuses_a_number=("if store.list(COMMITS)[-1] != name:", "if False:"),
        reads_the_oldest=("store.read(names[-1])", "store.read(names[0])"),
        removes_what_is_named=(
            "gone = {each.object for each in before.files.values()} - named",
            "gone = {each.object for each in before.files.values()}",
        ),
        keeps_what_nobody_names=("if n not in named", "if n in ()"),
    ),
    *rows(
        "job_jax/buckets/fetch.py",
        _MIRROR,
        believes_any_bytes=("if not is_intact(partial, stored):", "if False:"),
        trusts_what_was_cut=("self._path.unlink(missing_ok=True)", "pass"),
        leaves_empty_steps=("path.rmdir()", "pass"),
        keeps_other_times=("os.utime(partial, ns=", "dict(ns="),
    ),
    *rows(
        "job_jax/buckets/joint.py",
        _JOINT,
        names_what_was_cut=('if f"{folder}/{_COMPLETE}" not in found:', "if False:"),
        is_ahead_of_its_files=(
            "sorted(checkpoints - self._named)",
            "sorted(self._begun - self._named)",
        ),
        keeps_every_checkpoint=(
            "return kept_checkpoints(files, self._configs)",
            "return files",
        ),
        carries_copies_as_well=(
            'if not path.startswith(f"{CHECKPOINTS}/")]',
            "]",
        ),
        drops_the_new_with_the_old=(
            "and stored.object not in self._dropped",
            "",
        ),
        follows_anybody=("if commit.number != number:", "if False:"),
        forgets_its_own_files=("keeps_unknown=True", "keeps_unknown=False"),
        commits_as_another=(
            "if processes.is_primary():\n            super().publish()",
            "super().publish()",
        ),
    ),
    *rows(
        "job_jax/buckets/mirror.py",
        _MIRROR,
        commits_before_it_uploads=(
            "self._store.upload(name, copy)",
            "self._uploader.submit(self._store.upload, name, copy)",
        ),
        links_what_is_appended_to=(
            'if path.startswith("checkpoints/"):',
            "if True:",
        ),
        claims_nothing=(
            "number=before.number + 1, owner",
            "number=before.number, owner",
        ),
        tells_nobody=("upload.result()", "pass"),
    ),
    *rows(
        "job_jax/calls.py",
        ("tests/job_jax/test_calls.py",),
        all_at_once=("Semaphore(limits.concurrency)", "Semaphore(10**6)"),
        errors_stop_an_overrun=(
            "class _Overrun(BaseException)",
            "class _Overrun(Exception)",
        ),
        shorter_limits=(
            "timeout=timeout_s)\n    if not done",
            "timeout=timeout_s / 9)\n    if not done",
        ),
    ),
    *rows(
        "job_jax/command.py",
        ("tests/test_generate.py",),
        repeated_flags_add_up=("        values[name].unparse()", "        pass"),
    ),
    *rows(
        "job_jax/command_help.py",
        ("tests/job_jax/test_command_help.py",),
        comments_above_are_skipped=("while start - 1 in alone:", "while False:"),
        takes_the_comment_of_the_field_before=(
            'if token.line.lstrip().startswith("#"):',
            "if True:",
        ),
        comments_in_brackets_are_skipped=(
            "range(first, last + 1)",
            "range(first, first + 1)",
        ),
        forgets_inherited_comments=("comments |= _class", "comments = _class"),
    ),
    *rows(
        "job_jax/config_io.py",
        ("tests/models/test_match.py",),
        gives_what_was_left_out=(
            "elif field.name not in section.stated:",
            'elif field.name == "":',
        ),
    ),
    *rows(
        "job_jax/config_io.py",
        ("tests/job_jax/test_config_io.py",),
        needed_fields_came_later=("if not has_default(field):", "if False:"),
        later_fields_are_not_told=('if ": absent -> " in line', "if not line"),
    ),
    *rows(
        "job_jax/config_io.py",
        ("tests/job_jax/test_config_io.py",),
        todays_default=("{**chosen.earlier_values, **data}", "{**data}"),
    ),
    *rows(
        "job_jax/hints.py",
        ("tests/config/test_other_names.py",),
        leaves_the_section=("if path.startswith(prefix)]", "]"),
        seeds_are_everywhere=("with_own=depth > 0 or not parents", "with_own=True"),
        choices_of_any_section=("and path == prefix and name in", "and name in"),
        forgets_other_classes=("][:1]\n", "][:0]\n"),
        fields_before_flags=("[] if is_near else find_fields", "[] or find_fields"),
    ),
    *rows(
        "job_jax/registry.py",
        ("tests/job_jax/test_registry.py", "tests/config/test_other_names.py"),
        files_are_modules=('if folder or file.endswith(".py"):', "if folder:"),
        folders_are_modules=("if folder or file", "if not folder and file"),
        spelling_before_values=("cls._refuse_field_value(name, path)", "pass"),
        no_notes=("if name in self._notes:", "if False:"),
    ),
    *rows(
        "job_jax/schema.py",
        ("tests/config/test_other_names.py",),
        python_has_no_other_names=("suggest(called) or ", ""),
        only_its_own=(
            'yield from _iter_declared(inner, f"{path}{field.name}.")',
            "pass",
        ),
    ),
    *rows(
        "job_jax/digests.py",
        ("tests/job_jax/test_checkpoint.py",),
        a_changed_file_is_intact=("digest_of(file) != recorded[path]", "False"),
        a_damaged_checkpoint_is_read=("if not damaged:", "if True:"),
        digests_of_removed_steps_stay=("if old.name not in kept:", "if False:"),
    ),
    *rows(
        "job_jax/disk.py",
        ("tests/job_jax/test_disk.py",),
        needs_more_than_all=(">= needed:", "> needed:"),
        takes_any_word=("if os.strerror(number) in str(error):", "if True:"),
        looks_no_deeper=(
            "error = error.__cause__ or error.__context__",
            "error = None",
        ),
        renames_files=("error.filename is not None:", "False:"),
    ),
    *rows(
        "job_jax/files.py",
        ("tests/job_jax/test_files.py",),
        keeps_the_old_digest=(
            "_digest_file(target).unlink(missing_ok=True)\n    with",
            "with",
        ),
        trusts_every_file=("if recorded.is_file() and", "if False and"),
    ),
    *rows(
        "job_jax/heartbeat.py",
        ("tests/job_jax/test_heartbeat.py",),
        accuses_the_prompt=("grows=not is_new", "grows=True"),
        never_behind=("is_behind = exchanges < newest", "is_behind = False"),
    ),
    *rows(
        "job_jax/metrics.py",
        ("tests/job_jax/test_working.py",),
        printed_lines_are_silence=(
            'self._stream.write(f"{line}\\n")\n        self._stream.flush()\n'
            "        self._narrator.note_line()",
            'self._stream.write(f"{line}\\n")\n        self._stream.flush()',
        ),
        time_left_stands_still=(" - (now - self._last)\n", "\n"),
    ),
    *rows(
        "job_jax/trackers/background.py",
        _BACKGROUND,
        hands_over_what_is_held=("if is_new:", "if True:"),
        begins_behind_the_file=(
            "self._read_lines()[self._next :]",
            "self._read_lines()[self._next + 1 :]",
        ),
        forgets_a_failure=(
            "self._tracker.log(self._described)",
            "self._next += 1; self._tracker.log(self._described)",
        ),
        keeps_no_mark=(
            "self._state.mark(self.name, line.number + 1)",
            "self._state.mark(self.name, line.number)",
        ),
        holds_everything=("len(self._pending) < _MAX_PENDING", "True"),
        ends_with_its_tracker=(
            "except (Exception, SystemExit) as error:\n                self._warn",
            "except Exception as error:\n                self._warn",
        ),
        begins_untracked=("if not self.run.num_logged:", "if False:"),
        marks_what_was_lost=(
            "self._state.mark_finished(self.name, False)",
            "pass",
        ),
    ),
    *rows(
        "job_jax/workdir.py",
        ("tests/integration/test_runs.py::test_a_workdir_has_one_run_at_a_time",),
        two_runs_share_a_workdir=("fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_UN"),
    ),
    *rows(
        "job_jax/working.py",
        ("tests/job_jax/test_working.py",),
        never_reminds=("+ QUIET_S - now) > 0:", "+ 1e9 - now) > 0:"),
        reminds_of_work_that_is_over=("self._works.remove(work)", "pass"),
        every_process_reminds=("if not is_primary():", "if False:"),
        forgets_the_progress_line=("if self._lines:", "if False:"),
        keeps_a_line_of_failed_work=("if each[0] <= depth]", "]"),
    ),
    *rows(
        "job_jax/buckets/mirror.py",
        ("tests/job_jax/buckets/test_mirror.py",),
        a_file_that_changed_keeps_its_object=(
            "if before and before.digest == digest:",
            "if before:",
        ),
        files_have_the_time_of_the_upload=(
            "mtime_ns=snapshot.stamps[path][1],",
            "mtime_ns=copy.stat().st_mtime_ns,",
        ),
    ),
    *rows(
        "job_jax/buckets/commits.py",
        ("tests/job_jax/buckets/test_mirror.py",),
        removes_the_newest=(
            "if name < _name(newest.number)]",
            "if name <= _name(newest.number)]",
        ),
    ),
    *rows(
        "job_jax/buckets/fetch.py",
        ("tests/job_jax/buckets/test_mirror.py",),
        keeps_files_of_another_commit=(
            "elif stored or path in known or not keeps_unknown:",
            "elif stored or not keeps_unknown:",
        ),
        takes_files_that_are_being_written=('if not name.endswith(".partial")]', "]"),
    ),
    *rows(
        "job_jax/config.py",
        ("tests/job_jax/test_checkpoint.py",),
        planned_ones_go_first=("s % self.every != 0", "s % self.every == 0"),
        drops_the_newest=("(s != newest, ", "(s == newest, "),
    ),
    *rows(
        "job_jax/checkpoint.py",
        ("tests/job_jax/test_disk.py",),
        warns_of_writes_that_never_began=(
            'warnings.filterwarnings("ignore", pending, RuntimeWarning)',
            "pass",
        ),
    ),
    *rows(
        "job_jax/trackers/tensorboard.py",
        ("tests/job_jax/test_metrics.py",),
        shows_a_step_only_at_the_end=("self._writer.flush()", "pass"),
        waits_for_the_disk=("self._writer.flush()", "super().flush()"),
        file_of_no_version=("_write(file, file_version=_FILE_VERSION)", "pass"),
    ),
    *rows(
        "job_jax/steps.py",
        ("tests/job_jax/test_steps.py",),
        never_saves_by_time=("if due or self._is_overdue():", "if due:"),
        saves_every_step_when_off=("if not self._max_age:", "if False:"),
        time_counts_from_the_start=("self._saved_at = self._clock()", "pass"),
        each_process_has_its_clock=(
            "return processes.broadcast(\n            lambda: self._clock()",
            "return bool(\n            self._clock()",
        ),
    ),
    *rows(
        "job_jax/checkpoint.py",
        ("tests/job_jax/test_checkpoint.py",),
        keeps_every_checkpoint=(
            "preservation_policy=_KeepChosen(config), cleanup_tmp_directories=True",
            "cleanup_tmp_directories=True",
        ),
        swapped_arrays_have_the_same_digest=(
            'f"{name} {array.dtype} {array.shape}\\n"',
            'f"{array.dtype} {array.shape}\\n"',
        ),
        takes_unknown_arrays=(
            'if here is None and name.split("/")[0] in sections:',
            "if False:",
        ),
    ),
    *rows(
        "job_jax/steps.py",
        ("tests/job_jax/test_steps.py",),
        time_starts_again=(
            'self._seconds_before = saved["seconds"]',
            "self._seconds_before = 0.0",
        ),
        drops_the_last_line_of_metrics=(
            "rewind(self.name, self.start_step)",
            "rewind(self.name, self.start_step - 1)",
        ),
        saves_a_step_late=(
            "due = done % self._every == 0 or",
            "due = step % self._every == 0 or",
        ),
        ends_without_a_checkpoint=(
            "or done == self.num_steps or stopping",
            "or stopping",
        ),
        a_finished_stage_is_stopped=(
            "if stopping and done < self.num_steps:",
            "if stopping:",
        ),
    ),
    *rows(
        "job_jax/machine.py",
        ("tests/job_jax/test_machine.py",),
        only_the_own_group=("group = group.parent", "break"),
        no_quota=("int(quota) / int(period)", "int(quota)"),
        names_the_architecture=("names[0].strip() if names else", ""),
    ),
    *rows(
        "job_jax/buckets/commits.py",
        ("tests/job_jax/buckets/test_mirror.py",),
        ones_own_commit_is_another_runs=(
            "if not _has_content(store, name, data):",
            "if True:",
        ),
    ),
    *rows(
        "job_jax/flags.py",
        _FLAGS,
        keeps_wrong_flags=("faults.append(str(error))", "pass"),
        misses_nothing=("if not has_default(field) and value in", "if value in"),
        keeps_the_underscore=('field.rstrip("_")', "field"),
        believes_any_bounds=(
            "check_value(name, value, field.type)",
            "value",
        ),
        lets_arguments_through=(
            "if len(given) > len(arguments) and not at_least:",
            "if False:",
        ),
        splits_a_repeated_flag=("elif constraint is _REPEATED:", "elif False:"),
    ),
    *rows(
        "job_jax/mesh.py",
        ("tests/job_jax/test_mesh.py",),
        optimizes_less_on_accelerators=(" or _has_plugin()):", "):"),
        optimizes_less_on_tpus=(' or find_spec("libtpu") is not None', ""),
        overrides_the_level=(" or _LLVM_LEVEL in flags", ""),
        adds_to_a_files_name=("is_file or ", ""),
    ),
]

// node gguf_tokens.mjs MODEL.gguf TEXTS.json IDS.json: llama.cpp's ids of each text.
import fs from "fs";
import {getLlama} from "node-llama-cpp";

const [model, texts, ids] = process.argv.slice(2);
const llama = await getLlama({build: "never", gpu: false, logLevel: "error"});
const loaded = await llama.loadModel({modelPath: model, vocabOnly: true});
const tokenized = JSON.parse(fs.readFileSync(texts)).map((text) => Array.from(loaded.tokenize(text, true)));
fs.writeFileSync(ids, JSON.stringify(tokenized));
process.exit(0);

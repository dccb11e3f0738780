"""Makes testdata/demo/long-prompt.json: the ids of a conversation longer than twice the demo model's window of 512 tokens.

Usage: long_prompt.py MODEL_DIR DIALOGUES OUT (needs the PyPI package tokenizers). The first turn of the first dialogue is the fact that
only full layers still see directly from the end: the sliding layers' window is 512 tokens.
"""

import json
import sys

from tokenizers import Tokenizer

MIN_TOKENS = 1300


def main(model_dir, dialogues, out):
    tokenizer = Tokenizer.from_file(f"{model_dir}/tokenizer.json")
    turns = []
    for line in open(dialogues, encoding="utf-8"):
        line = line.rstrip("\n")
        if line.startswith("> "):
            turns.append((line[2:], ""))
        elif line and turns:
            question, answer = turns[-1]
            turns[-1] = (question, f"{answer}\n{line}".strip())
    text = "<bos>"
    for _ in range(8):
        for question, answer in turns:
            text += f"<|turn>user\n{question}<turn|>\n<|turn>model\n{answer}<turn|>\n"
            ids = tokenizer.encode(text + "<|turn>user\nWhat is a thrush?<turn|>\n<|turn>model\n", add_special_tokens=False).ids
            if len(ids) >= MIN_TOKENS:
                json.dump([ids], open(out, "w", encoding="utf-8"))
                print(len(ids), "tokens")
                return
    sys.exit("the dialogues are too short")


if __name__ == "__main__":
    main(*sys.argv[1:])

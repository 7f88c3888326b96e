#!/usr/bin/env python3
"""Turns the books into token ids: step 1, needs the package `tokenizers`.

    prepare.py CORPUS DATA      CORPUS: corpus.tar.xz, or a folder with its .txt files

Writes into the folder DATA
    tokenizer.json   byte-level BPE in the format of Hugging Face: 0 = <|endoftext|>, 1..256 = the
                     bytes, then merges. Trained without the held-out books.
    tokens.bin       uint16, little endian: of each book, in turn, <|endoftext|> and the text
    books.json       what tokens.bin holds, and the SHA-256 of the corpus

The hash is that of `LC_ALL=C sha256sum *.txt | sha256sum` among the books. The same books and
version of `tokenizers` give the same files.
"""

import argparse
import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"

# One of each kind (fairy tale, fantasy, detective story), by authors with other books among the
# rest: their figure says how well the model knows its kind of text, not text in general.
HELD_OUT = ("lang_the-olive-fairy-book.txt", "baum_the-scarecrow-of-oz.txt",
            "doyle_the-valley-of-fear.txt")


def read_books(corpus: Path) -> dict[str, bytes]:
    """File name -> content, in the order of the names."""
    if corpus.is_dir():
        books = {path.name: path.read_bytes() for path in corpus.glob("*.txt")}
    else:
        with tarfile.open(corpus) as archive:
            books = {Path(member.name).name: archive.extractfile(member).read()
                     for member in archive if member.name.endswith(".txt")}
    missing = set(HELD_OUT) - set(books)
    if missing:
        raise SystemExit(f"prepare: {corpus} lacks {', '.join(sorted(missing))}")
    return dict(sorted(books.items()))


def corpus_sha256(books: dict[str, bytes]) -> str:
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in books.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def clean(content: bytes) -> str:
    """One newline between paragraphs: the blank lines would be a token each, and say nothing."""
    lines = (line.strip() for line in content.decode("utf-8").splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def train_tokenizer(texts: list[str], vocab: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # GPT-2's split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END_OF_TEXT],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab or tokenizer.token_to_id(END_OF_TEXT) != 0:
        raise SystemExit(f"prepare: too little text for --vocab {vocab}")
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--vocab", type=int, default=8192, help="257 to 65536 (default 8192)")
    arguments = parser.parse_args()
    if not 257 <= arguments.vocab <= 65536:
        parser.error(f"--vocab {arguments.vocab}: 257 to 65536")

    books = read_books(arguments.corpus)
    texts = {name: clean(content) for name, content in books.items()}
    tokenizer = train_tokenizer([text for name, text in texts.items() if name not in HELD_OUT],
                                arguments.vocab)

    ids, rows = [], []
    for name, text in texts.items():
        tokens = [0, *tokenizer.encode(text).ids]
        ids.append(np.array(tokens, dtype="<u2"))
        rows.append({"file": name, "tokens": len(tokens), "bytes": len(text.encode("utf-8")),
                     "held_out": name in HELD_OUT})

    arguments.data.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.data / "tokenizer.json"), pretty=False)
    np.concatenate(ids).tofile(arguments.data / "tokens.bin")
    index = {"corpus_sha256": corpus_sha256(books), "vocab": arguments.vocab, "books": rows}
    (arguments.data / "books.json").write_text(json.dumps(index, indent=1) + "\n")

    size = sum(row["bytes"] for row in rows)
    count = sum(row["tokens"] for row in rows)
    print(f"prepare: {len(rows)} books, {size:,} bytes, {count:,} tokens "
          f"({size / count:.3f} bytes each), corpus {index['corpus_sha256']}")


if __name__ == "__main__":
    main()

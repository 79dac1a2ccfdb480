"""Wordpiece tokens, trained on the texts at hand and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterable, Sequence

import tokenizers
import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Int
from bayesattn.support.files import user_cache, write_atomically

PAD, UNK, CLS, SEP = range(4)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class Wordpieces:
    """Texts → token ids and back. Ids 0 to 3 are padding, unknown, the start and the end of a text.

    >>> pieces = Wordpieces.trained(["the cat sat", "the mat sat"] * 9, size=40)
    >>> pieces.decode(pieces.encode(["the cat sat"]))
    ['the cat sat']
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    @classmethod
    def trained(cls, texts: Sequence[str], size: int) -> Wordpieces:
        """At most `size` pieces that make up `texts` best; read from the cache if they were trained on the same texts before."""
        checks.whole("size", size, minimum=len(SPECIAL) + 1)
        digest = hashlib.sha256(f"{size} {tokenizers.__version__} ".encode())
        for text in texts:
            digest.update(text.encode() + b"\n")
        path = user_cache() / f"wordpieces-{digest.hexdigest()[:16]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        # ties are broken at random when pieces are trained: of several processes, all must use what the first one got
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                write_atomically(path, cls._train(texts, size).to_str())
        return cls(Tokenizer.from_file(str(path)))

    @staticmethod
    def _train(texts: Sequence[str], size: int) -> Tokenizer:
        tokenizer = Tokenizer(WordPiece(unk_token=SPECIAL[UNK]))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
        return tokenizer

    @property
    def digest(self) -> int:
        """A number that tells these pieces from others, to be kept with a model that was trained on their ids."""
        names = sorted(self._tokenizer.get_vocab().items(), key=lambda item: item[1])
        return int.from_bytes(hashlib.sha256(repr(names).encode()).digest()[:7], "big")

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """The pieces of each text, without a start or an end."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """The texts of rows of ids: what stands before the first end, without padding and start."""
        return [self._tokenizer.decode(_content(row), skip_special_tokens=False) for row in rows]


def padded(rows: Sequence[Sequence[int]], length: int) -> Int[Tensor, "texts length"]:
    """Rows of ids as one tensor, each with an end after it, filled up with padding."""
    tokens = torch.full((len(rows), length), PAD)
    for place, row in enumerate(rows):
        if len(row) >= length:
            raise ValueError(f"A text of {len(row)} tokens and its end do not fit into {length}.")
        tokens[place, : len(row) + 1] = torch.tensor([*row, SEP])
    return tokens


def _content(row: Sequence[int]) -> list[int]:
    ids = [int(token) for token in row]
    ids = ids[: ids.index(SEP)] if SEP in ids else ids
    return [token for token in ids if token not in (PAD, CLS)]

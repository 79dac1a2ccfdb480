"""Byte-pair encoding (by `tokenizers`), trained on given sentences and kept in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Shaped
from bayesattn.support.files import user_cache, write_atomically

PAD, BEGIN, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")


class Subwords:
    """Sentences ↔ token ids. A piece that begins a word begins with "▁"; punctuation stands alone; text is in lower case."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, sentences: Sequence[str], size: int) -> Subwords:
        """At most `size` pieces learned from these sentences; read from the cache if they were learned before."""
        checks.whole("vocabulary", size, len(SPECIAL) + 1)
        digest = hashlib.sha256(json.dumps([size, SPECIAL, list(sentences)]).encode()).hexdigest()
        path = user_cache() / "subwords" / f"{digest[:20]}.json"
        if path.exists():
            return cls(Tokenizer.from_str(path.read_text()))
        tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
        tokenizer.train_from_iterator(sentences, trainer)
        write_atomically(path, tokenizer.to_str())
        return cls(tokenizer)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The pieces of each sentence, between BEGIN and END."""
        encodings = self._tokenizer.encode_batch(list(sentences))
        return [[BEGIN, *encoding.ids, END] for encoding in encodings]

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Their text, without special tokens."""
        return [text.strip() for text in self._tokenizer.decode_batch([list(sentence) for sentence in sentences])]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as a person reads it."""
        return [str(self._tokenizer.id_to_token(token)) for token in tokens]


def padded(sentences: Sequence[Sequence[int]]) -> Shaped[Tensor, "n length"]:
    """Token ids as one tensor, PAD at the end."""
    longest = max(map(len, sentences))
    return torch.tensor([[*sentence, *[PAD] * (longest - len(sentence))] for sentence in sentences])


def trimmed(tokens: Shaped[Tensor, "n length"]) -> Shaped[Tensor, "n shorter"]:
    """Without the columns that are PAD in every row."""
    return tokens[:, : int((tokens != PAD).sum(1).max())]

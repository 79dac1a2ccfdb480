"""The treebank's preprocessing, rule by rule, and its faults."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bayesattn.experiments.data import ud_ewt
from bayesattn.experiments.data.files import DataError, DataFile, locate
from bayesattn.experiments.data.ud_ewt import MAX_LEN, PAD, PAD_TAG, TAGS, Vocabulary, Word, load_ud_ewt, parse
from helpers.data_files import conllu, put

FILE = DataFile("ud/part.conllu", "", "somewhere")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    return tmp_path


def words(*pairs: tuple[str, int]) -> list[list[Word]]:
    return [[Word(lemma.upper(), lemma, "NOUN")] * count for lemma, count in pairs]


def test_punctuation_and_tokens_without_a_letter_are_left_out(folder: Path) -> None:
    sentence = [
        ("Cats", "cat", "NOUN"),
        (",", ",", "PUNCT"),
        ("2004", "2004", "NUM"),
        ("$", "$", "SYM"),
        ("2nd", "2nd", "ADJ"),
    ]
    assert parse(put(folder, FILE, conllu([sentence, [(".", ".", "PUNCT")]]))) == [
        [Word("Cats", "cat", "NOUN"), Word("2nd", "2nd", "ADJ")]
    ]


def test_a_multi_word_token_counts_as_its_words(folder: Path) -> None:
    text = conllu([[("do", "do", "AUX"), ("n't", "not", "PART")]]).decode()
    text = text.replace("1\tdo", "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo")
    assert [word.form for word in parse(put(folder, FILE, text.encode()))[0]] == ["do", "n't"]


def test_rare_words_are_tokens_of_their_count() -> None:
    vocabulary = Vocabulary(words(("common", 9), ("five", 5), ("four", 4), ("once", 1)))
    assert vocabulary.names == ["PAD", "UKN1", "UKN2", "UKN3", "UKN4", "common", "five"]
    tokens = [vocabulary.token(lemma) for lemma in ("common", "five", "four", "once", "never")]
    assert tokens == [5, 6, 4, 1, 1]


def test_a_form_has_the_lemma_that_it_mostly_has() -> None:
    sentences = [[Word("left", "leave", "VERB")] * 3 + [Word("left", "left", "ADJ")]]
    vocabulary = Vocabulary(sentences)
    assert vocabulary.lemma("Left") == "leave"
    assert vocabulary.lemma("Unseen") == "unseen"


def test_long_sentences_are_split_and_short_ones_padded(folder: Path) -> None:
    sentence = [("dog", "dog", "NOUN")] * (MAX_LEN + 2)
    parsed = parse(put(folder, FILE, conllu([sentence])))
    encoded = ud_ewt._encoded(parsed, Vocabulary(parsed))
    assert encoded.tokens.shape == (2, MAX_LEN)
    assert (encoded.tokens[0] == 5).all()
    assert encoded.tokens[1].tolist() == [5, 5] + [PAD] * (MAX_LEN - 2)
    assert encoded.tags[1].tolist() == [TAGS.index("NOUN")] * 2 + [PAD_TAG] * (MAX_LEN - 2)


def test_a_malformed_line_is_named(folder: Path) -> None:
    content = conllu([[("a", "a", "DET")], [("b", "b", "NOUN")]]).replace(b"1\tb\tb\tNOUN", b"1\tb\tNOUN")
    fault = r"part.conllu.gz, line 5: a CoNLL-U line has 10 columns, this one has 9: '1.tb.*Get it from somewhere"
    with pytest.raises(DataError, match=fault):
        parse(put(folder, FILE, content))


def test_an_unknown_tag_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match="sentence 0: 'NOMEN' is not a universal part of speech"):
        parse(put(folder, FILE, conllu([[("a", "a", "NOMEN")]])))


def test_an_id_that_is_no_number_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"part.conllu.gz is not CoNLL-U"):
        parse(put(folder, FILE, conllu([[("a", "a", "DET")]]).replace(b"1\ta", b"one\ta")))


@pytest.mark.slow
def test_the_real_treebank() -> None:
    if any(locate(file) is None for file in ud_ewt.FILES):
        pytest.skip("UD English EWT is not here")
    vocabulary, train, _, test = load_ud_ewt()
    assert train.tokens.max() == len(vocabulary) - 1
    assert len(test.words) == len(test.tokens)
    assert torch.equal((test.tokens != PAD).sum(1), torch.tensor([len(sentence) for sentence in test.words]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no sentences"),
        (b"# only a remark\n\n", "holds no sentences"),
        (
            conllu([[("Cats", "cat", "NOUN")]]).replace(b"\n1\t", b"\n" + b"9" * 5000 + b"\t"),
            "is not CoNLL-U: .*5000 digits",
        ),
    ],
)
def test_a_file_without_sentences_or_with_monstrous_numbers_is_named(
    folder: Path, content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=f"part.conllu.gz {message}"):
        parse(put(folder, FILE, content))

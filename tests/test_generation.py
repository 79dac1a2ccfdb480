"""Generation with uncertainty, token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bayesattn as ba
from bayesattn import generation as generating

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

from helpers.architectures import BY_NAME


def prompt(name: str) -> dict[str, Any]:
    inputs = {key: value for key, value in BY_NAME[name].inputs().items() if not key.startswith("decoder")}
    if BY_NAME[name].kind == "decoder":
        inputs = {key: value.flip(1) for key, value in inputs.items()}
    return {**inputs, "max_new_tokens": 7}


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Gemma 2", "T5", "BART"])
def test_without_noise_it_is_greedy_generation_with_no_disagreement(name: str) -> None:
    model: Any = ba.convert(BY_NAME[name].build(), ba.Softmax())
    inputs = prompt(name)
    expected = model.generate(**inputs, do_sample=False, output_logits=True, return_dict_in_generate=True)
    generation = ba.generate(model, **inputs, samples=3)
    assert torch.equal(generation.sequences, expected.sequences)
    assert generation.mutual_information.max() < 1e-5
    log_probabilities = torch.stack(expected.logits, 1).log_softmax(-1)
    picked = log_probabilities.gather(-1, generation.tokens.unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(-1)
    torch.testing.assert_close(generation.log_prob, picked * generation.mask, atol=1e-4, rtol=0)
    torch.testing.assert_close(generation.entropy, entropy * generation.mask, atol=1e-4, rtol=0)


def test_the_numbers_are_those_of_the_samples() -> None:
    """The first token needs no cache, so that plain sampled passes tell what it must be."""
    model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=1.0))
    inputs = prompt("Llama")
    generation = ba.generate(
        model, **{**inputs, "max_new_tokens": 1}, samples=64, generator=torch.Generator().manual_seed(5)
    )
    folded = {name: torch.cat([inputs[name]] * 64) for name in ("input_ids", "attention_mask")}
    positions = (folded["attention_mask"].cumsum(1) - 1).clamp_min(0)
    with torch.no_grad(), ba.sampling(torch.Generator().manual_seed(5)):
        logits = model(**folded, position_ids=positions).logits[:, -1]
    prediction = ba.CategoricalPrediction(logits.unflatten(0, (64, 2)))
    assert torch.equal(generation.tokens[:, 0], prediction.label)
    torch.testing.assert_close(generation.entropy[:, 0], prediction.entropy, atol=1e-4, rtol=0)
    torch.testing.assert_close(generation.mutual_information[:, 0], prediction.mutual_information, atol=1e-4, rtol=0)
    assert (prediction.mutual_information > 1e-3).all()
    torch.testing.assert_close(generation.log_prob[:, 0], prediction.log_prob(prediction.label), atol=1e-4, rtol=0)
    torch.testing.assert_close(generation.expected_entropy[:, 0], prediction.expected_entropy, atol=1e-4, rtol=0)


def test_drawing_tokens_follows_the_predictive_distribution() -> None:
    model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Softmax())
    ids = torch.tensor([[5, 6, 7]]).expand(4000, 3)
    generation = ba.generate(
        model, input_ids=ids, samples=1, max_new_tokens=1, do_sample=True, top_k=3, temperature=0.5
    )
    with torch.no_grad():
        logits = model(ids[:1]).logits[0, -1]
    values, kept = logits.topk(3)
    frequencies = torch.stack([(generation.tokens == token).float().mean() for token in kept])
    assert frequencies.sum() == 1.0
    torch.testing.assert_close(frequencies, (values / 0.5).softmax(-1), atol=0.03, rtol=0)


def test_nothing_is_reported_after_the_end_of_a_text() -> None:
    model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=2.0))
    inputs = prompt("Llama")
    free = ba.generate(model, **inputs, samples=4, generator=torch.Generator().manual_seed(0))
    end = int(free.tokens[0, 2])
    ended = ba.generate(model, **inputs, samples=4, eos_token_id=end, generator=torch.Generator().manual_seed(0))
    length = ended.tokens.shape[1]
    first = (free.tokens[0] == end).nonzero()[0].item() + 1
    assert ended.mask[0].tolist() == [True] * first + [False] * (length - first)
    assert (ended.entropy[~ended.mask] == 0).all()
    assert (ended.entropy[ended.mask] > 0).all()


class TestTheTrunk:
    """The layers below the first random one run once for all samples: same draws, same numbers."""

    ARCHITECTURES = ("GPT-2", "Llama", "Gemma 2", "Mistral")

    @staticmethod
    def rows_of_layers(model: Any, inputs: dict[str, Any], samples: int) -> list[set[int]]:
        """The numbers of rows that each layer's attention saw."""
        stack = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) > 1)
        rows: list[set[int]] = [set() for _ in stack]
        hooks = [
            layer.register_forward_hook(lambda _, __, output, seen=seen: seen.add(_first(output).shape[0]))
            for layer, seen in zip(stack, rows, strict=True)
        ]
        ba.generate(model, **inputs, samples=samples)
        for hook in hooks:
            hook.remove()
        return rows

    @pytest.mark.parametrize("name", ARCHITECTURES)
    def test_it_changes_nothing_but_the_rows(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two padded texts in the batch."""
        model: Any = ba.convert(BY_NAME[name].build(), ba.Weibull(k=1.0), where="last")
        inputs = prompt(name)
        assert self.rows_of_layers(model, inputs, 3)[0] == {2}
        assert self.rows_of_layers(model, inputs, 3)[-1] == {6}
        shared = ba.generate(model, **inputs, samples=3, generator=torch.Generator().manual_seed(4))
        monkeypatch.setattr(generating, "_sharing_the_trunk", lambda *_: None)
        assert self.rows_of_layers(model, inputs, 3)[0] == {6}
        folded = ba.generate(model, **inputs, samples=3, generator=torch.Generator().manual_seed(4))
        assert torch.equal(shared.sequences, folded.sequences)
        assert (shared.mutual_information[shared.mask] > 1e-6).all()
        for field in ("log_prob", "entropy", "mutual_information"):
            torch.testing.assert_close(getattr(shared, field), getattr(folded, field), atol=1e-5, rtol=1e-4)

    def test_a_model_that_is_random_from_the_start_or_before_its_layers_has_none(self) -> None:
        model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=1.0))
        assert self.rows_of_layers(model, prompt("Llama"), 3)[0] == {6}

        class Noisy(torch.nn.Embedding):
            pass

        model = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=1.0), where="last")
        model.model.embed_tokens.__class__ = Noisy
        assert self.rows_of_layers(model, prompt("Llama"), 3)[0] == {6}

    def test_processors_of_the_caller_see_every_sample(self) -> None:
        model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=1.0), where="last")
        seen: list[tuple[int, ...]] = []

        def look(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            seen.append((len(ids), len(scores)))
            return scores

        ba.generate(model, **prompt("Llama"), samples=3, logits_processor=[look], repetition_penalty=1.3)
        assert seen == [(6, 6)] * 7

    def test_layers_that_run_twice_for_a_token_are_run_for_all_samples(self) -> None:
        model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=1.0), where="last")
        calls = 0

        class Twice(type(model.model)):
            __module__ = "transformers.models.twice"

            def forward(self, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                states = super().forward(input_ids=kwargs["input_ids"], use_cache=False).last_hidden_state
                return super().forward(inputs_embeds=states, use_cache=False)

        model.model.__class__ = Twice
        inputs = {**prompt("Llama"), "use_cache": False}
        shared = ba.generate(model, **inputs, samples=2, generator=torch.Generator().manual_seed(1))
        assert calls == 14  # once in vain
        calls = 0
        again = ba.generate(model, **inputs, samples=2, generator=torch.Generator().manual_seed(1))
        assert calls == 7
        assert torch.equal(shared.entropy, again.entropy)

    def test_an_error_of_the_callers_own_is_raised(self) -> None:
        model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=1.0), where="last")

        def fail(*_: Any) -> torch.Tensor:
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            ba.generate(model, **prompt("Llama"), samples=2, logits_processor=[fail])
        assert self.rows_of_layers(model, prompt("Llama"), 3)[0] == {2}


def _first(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]


def test_the_mode_of_every_module_is_restored() -> None:
    model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=2.0)).train()
    model.lm_head.eval()
    ba.generate(model, input_ids=torch.tensor([[5, 6]]), samples=2, max_new_tokens=1)
    assert model.training
    assert not model.lm_head.training


def test_beams_models_that_do_not_generate_and_missing_text_are_refused() -> None:
    model: Any = ba.convert(BY_NAME["Llama"].build(), ba.Weibull(k=2.0))
    with pytest.raises(ValueError, match="num_beams=4 is not supported"):
        ba.generate(model, input_ids=torch.tensor([[5, 6]]), num_beams=4)
    with pytest.raises(ValueError, match="pass input_ids="):
        ba.generate(model, max_new_tokens=3)
    with pytest.raises(TypeError, match=r"Linear has no generate\(\)"):
        ba.generate(torch.nn.Linear(2, 2), input_ids=torch.tensor([[5, 6]]))


def test_random_network_weights_are_refused() -> None:
    model = ba.weight_space.mean_field(BY_NAME["GPT-2"].build(), "gaussian", where="last")
    with pytest.raises(ValueError, match="random network weights, which all rows share"):
        ba.generate(model, **prompt("GPT-2"), samples=2)

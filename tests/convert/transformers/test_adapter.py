"""Converted Hugging Face models, architecture by architecture."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

from helpers.architectures import BY_NAME, CASES, VOCABULARY, Case, outputs

every_architecture = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
generating = pytest.mark.parametrize(
    "case", [case for case in CASES if case.kind in ("decoder", "seq2seq")], ids=lambda case: case.name
)


def run(case: Case, model: nn.Module, inputs: dict[str, Tensor], seed: int | None = None) -> Tensor:
    """Outputs at the real positions; with a seed, with sampled attention."""
    take = outputs(case.kind)
    with torch.no_grad():
        if seed is None:
            output = take(model(**inputs))
        else:
            torch.manual_seed(seed)
            with ba.sampling():
                output = take(model(**inputs))
    mask = inputs.get("decoder_attention_mask" if case.kind == "seq2seq" else "attention_mask")
    return output if case.kind in ("image", "clip") or mask is None else output[mask.bool()]


@every_architecture
def test_softmax_gives_the_eager_original_and_every_layer_is_ours(case: Case) -> None:
    original, inputs = case.build(), case.inputs()
    original.set_attn_implementation("eager")  # pyright: ignore[reportCallIssue]
    expected = run(case, original, inputs)
    model = case.build()
    keys = list(model.state_dict())
    before = model.config._attn_implementation  # pyright: ignore[reportAttributeAccessIssue]
    assert ba.convert(model, ba.Softmax()) is model
    assert list(model.state_dict()) == keys
    with ba.record() as latents:
        converted = run(case, model, inputs)
    torch.testing.assert_close(converted, expected, atol=1e-4, rtol=0)
    assert len(latents.local_terms) == case.runs
    assert len({id(term.source) for term in latents.local_terms}) == case.layers
    ba.revert(model)
    assert model.config._attn_implementation == before  # pyright: ignore[reportAttributeAccessIssue]
    torch.testing.assert_close(run(case, model, inputs), expected, atol=1e-4, rtol=0)
    with ba.record() as latents:
        run(case, model, inputs)
    assert len(latents) == 0


@every_architecture
def test_noise_is_fresh_and_padding_has_no_influence(case: Case) -> None:
    model, inputs = ba.convert(case.build(), ba.Weibull(k=10.0)), case.inputs()
    first, second = run(case, model, inputs, seed=1), run(case, model, inputs, seed=2)
    assert (first - second).abs().max() > 1e-3
    assert torch.equal(first, run(case, model, inputs, seed=1))
    for ids, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if ids in inputs:
            changed = dict(inputs)
            padding = inputs[mask] == 0
            changed[ids] = inputs[ids].masked_fill(padding, VOCABULARY - 3)
            assert not torch.equal(changed[ids], inputs[ids])
            assert torch.equal(run(case, model, changed, seed=1), first)


@generating
def test_future_tokens_have_no_influence(case: Case) -> None:
    model, inputs = ba.convert(case.build(), ba.Weibull(k=10.0)), case.inputs()
    name = "decoder_input_ids" if case.kind == "seq2seq" else "input_ids"
    del inputs[name.replace("input_ids", "attention_mask")]
    changed = {**inputs, name: inputs[name].clone()}
    changed[name][:, 4:] = VOCABULARY - 3
    first, second = run(case, model, inputs, seed=1), run(case, model, changed, seed=1)
    assert torch.equal(first[:, :4], second[:, :4])
    assert not torch.equal(first[:, 4:], second[:, 4:])


@generating
def test_greedy_generation_is_the_same_token_for_token(case: Case) -> None:
    original, model = case.build(), ba.convert(case.build(), ba.Softmax())
    inputs = {name: value for name, value in case.inputs().items() if not name.startswith("decoder")}
    if case.kind == "decoder":  # padded on the left, as for generation
        inputs = {name: value.flip(1) for name, value in inputs.items()}
    expected, converted = (
        part.generate(**inputs, max_new_tokens=10, do_sample=False, eos_token_id=None, no_repeat_ngram_size=2)  # pyright: ignore
        for part in (original, model)
    )
    assert torch.equal(expected, converted)
    assert len(expected[0].unique()) > 2


@generating
def test_the_cache_does_not_change_what_a_step_sees(case: Case) -> None:
    """With a cache, a step's noise is fresh; the point estimate must not depend on it."""
    model = ba.convert(case.build(), ba.Weibull(k=2.0))
    inputs = {name: value for name, value in case.inputs().items() if not name.startswith("decoder")}
    if case.kind == "decoder":
        inputs = {name: value.flip(1) for name, value in inputs.items()}
    with_cache, without = (
        model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None, use_cache=use)  # pyright: ignore[reportCallIssue]
        for use in (True, False)
    )
    assert torch.equal(with_cache, without)
    torch.manual_seed(0)
    settings = {"max_new_tokens": 6, "eos_token_id": None, "output_logits": True, "return_dict_in_generate": True}
    with ba.sampling():
        sampled = [model.generate(**inputs, **settings).logits[1] for _ in range(2)]  # pyright: ignore[reportCallIssue]
    assert not torch.equal(*sampled)


def counts(case: Case, inputs: dict[str, Tensor]) -> list[list[float]]:
    model = ba.convert(case.build(), ba.Weibull(k=10.0))
    with ba.record() as latents:
        model(**inputs)
    return [term.elements.tolist() for term in latents.local_terms]


def test_padding_counts_neither_as_key_nor_as_query() -> None:
    heads = 4
    assert counts(BY_NAME["BERT"], BY_NAME["BERT"].inputs()) == [[heads * 9 * 9, heads * 6 * 6]] * 2
    assert counts(BY_NAME["Llama"], BY_NAME["Llama"].inputs()) == [[heads * 45.0, heads * 21.0]] * 2
    encoder, decoder, cross = [heads * 81.0, heads * 36.0], [heads * 28.0, heads * 15.0], [heads * 63.0, heads * 30.0]
    for name in ("T5", "BART", "Marian"):
        case = BY_NAME[name]
        assert counts(case, case.inputs()) == [encoder, encoder, decoder, cross, decoder, cross]
        inputs = case.inputs()
        inputs["decoder_input_ids"] = torch.cat([inputs["decoder_input_ids"]] * 2, 1)[:, :9]  # as long as the source
        inputs["decoder_attention_mask"] = inputs["attention_mask"].clone()
        inputs["decoder_attention_mask"][1, 4:] = 0
        assert counts(case, inputs)[3] == [heads * 9 * 9, heads * 4 * 6]


def test_the_kl_of_an_example_does_not_depend_on_padding() -> None:
    case = BY_NAME["BERT"]
    model, inputs = ba.convert(case.build(), ba.Weibull(k=10.0)), case.inputs()
    with ba.record() as padded:
        model(**inputs)
    with ba.record() as alone:
        model(input_ids=inputs["input_ids"][1:, :6])
    torch.testing.assert_close(padded.local_kl[1:], alone.local_kl)


@pytest.mark.parametrize("name", ["BART", "BERT"])
def test_a_forward_pass_does_not_walk_the_modules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    case = BY_NAME[name]
    model, inputs = ba.convert(case.build(), ba.Weibull()), case.inputs()
    walks = []
    walk = nn.Module.named_modules  # `modules` and `children` go through it
    monkeypatch.setattr(nn.Module, "named_modules", lambda *args, **kw: (walks.append(args[0]), walk(*args, **kw))[1])
    model(**inputs)
    assert walks == []


def test_layers_converted_one_after_the_other_all_get_the_padding() -> None:
    case = BY_NAME["BART"]
    model = case.build()
    for part in ("cross", "self"):
        ba.convert(model, ba.Weibull(), where=part)
    decoder = copy.deepcopy(model).model.decoder  # pyright: ignore
    ids = torch.randint(3, 20, (2, 5))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with ba.record() as latents:
        decoder(ids, attention_mask=mask, encoder_hidden_states=torch.randn(2, 4, decoder.config.d_model))
    assert len(latents) == 2 * len(decoder.layers)
    for term in latents.local_terms:
        assert term.tokens.tolist() == [5, 3]
    with ba.record() as latents:  # and no longer than its own pass
        decoder(ids, encoder_hidden_states=torch.randn(2, 4, decoder.config.d_model))
    for term in latents.local_terms:
        assert term.tokens.tolist() == [5, 5]


def test_each_layer_has_its_own_prior_network_which_the_kl_trains() -> None:
    case = BY_NAME["BERT"]
    model = ba.convert(case.build(), ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=1.0))).train()
    networks = [module for name, module in model.named_modules() if name.endswith("prior.network")]
    assert len(networks) == 2
    assert not torch.equal(networks[0].inner.weight, networks[1].inner.weight)  # pyright: ignore
    with ba.record() as latents:
        output = model(**case.inputs())
    nll = output.logits.logsumexp(-1)
    ba.elbo(nll, latents, kl_reduction="sum", compare_gradients=False).backward()
    for network in networks:
        for name, weight in network.named_parameters():
            if name != "outer.bias":  # a softmax does not see a constant
                assert weight.grad is not None
                assert weight.grad.abs().max() > 0, name


def test_where_leaves_the_other_layers_with_their_own_attention() -> None:
    for implementation in ("eager", "sdpa"):
        case = BY_NAME["Llama"]
        original, model = case.build(), case.build()
        model.set_attn_implementation(implementation)  # pyright: ignore[reportCallIssue]
        ba.convert(model, ba.Softmax(), where="last")
        with ba.record() as latents:
            converted = run(case, model, case.inputs())
        assert list(latents.by_layer(model)) == ["model.layers.1.self_attn.posterior"]
        torch.testing.assert_close(converted, run(case, original, case.inputs()), atol=1e-4, rtol=0)
        ba.convert(model, ba.Softmax(), where="model.layers.0.*")
        with ba.record() as latents:
            run(case, model, case.inputs())
        assert len(latents.local_terms) == 2
        ba.revert(model)
        assert model.config._attn_implementation == implementation  # pyright: ignore[reportAttributeAccessIssue]


def test_the_two_towers_of_clip_are_converted_apart() -> None:
    case = BY_NAME["CLIP"]
    model = ba.convert(case.build(), ba.Weibull(k=10.0), where="text_model.*")
    with ba.record() as latents, ba.sampling():
        model(**case.inputs())
    assert {name.split(".")[0] for name in latents.by_layer(model)} == {"text_model"}
    assert model.vision_model.config._attn_implementation == "sdpa"  # pyright: ignore


def test_two_models_of_one_config_object_are_converted_apart() -> None:
    import transformers

    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    one, other = transformers.BertModel(config), transformers.BertModel(config)
    ba.convert(one, ba.Weibull(k=10.0))
    assert other.config._attn_implementation == "sdpa"
    ids = torch.tensor([[3, 4, 5]])
    with ba.record() as latents:
        other(ids)
    assert len(latents) == 0
    with ba.record() as latents:
        one(ids)
    assert len(latents) == 1


def test_a_copy_of_a_converted_model_is_converted() -> None:
    case = BY_NAME["BART"]
    model = ba.convert(case.build(), ba.Weibull(k=10.0, prior=ba.ContextualGamma()))
    twin = copy.deepcopy(model)
    assert torch.equal(run(case, model, case.inputs(), seed=3), run(case, twin, case.inputs(), seed=3))
    ba.revert(twin)
    assert torch.equal(run(case, model, case.inputs(), seed=3), run(case, model, case.inputs(), seed=3))
    with ba.record() as latents:
        run(case, model, case.inputs())
        run(case, twin, case.inputs())
    assert len(latents.local_terms) == case.runs


def test_a_model_inside_a_module_of_ones_own() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = BY_NAME["BERT"].build()

        def forward(self, **inputs: Tensor) -> Tensor:
            return self.body(**inputs).logits[:, 0]

    model = ba.convert(Wrapped(), ba.Weibull(k=10.0), where="body.bert.encoder.layer.1.*")
    with ba.record() as latents:
        model(**BY_NAME["BERT"].inputs())
    assert list(latents.by_layer(model)) == ["body.bert.encoder.layer.1.attention.self.posterior"]
    assert list(model.body.config.bayesattn["layers"]) == ["bert.encoder.layer.1.attention.self"]  # pyright: ignore
    ba.revert(model)
    assert model.body.config._attn_implementation == "sdpa"  # pyright: ignore


def test_a_bfloat16_model_keeps_its_dtype() -> None:
    case = BY_NAME["Llama"]
    model, inputs = case.build().to(torch.bfloat16), case.inputs()
    expected = run(case, model, inputs)
    ba.convert(model, ba.Weibull(k=1e6, prior=ba.ContextualGamma()))
    converted = run(case, model, inputs, seed=1)
    assert converted.dtype == torch.bfloat16
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(converted, expected, atol=0.03, rtol=0.03)  # bfloat16 has two digits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BERT", "Llama", "T5"])
def test_compiled_it_is_the_same_in_one_graph(name: str) -> None:
    script = Path(__file__).parent / "compiled.py"
    done = subprocess.run([sys.executable, script, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", ["BERT", "GPT-2"])
def test_output_attentions_are_the_weights_as_drawn(name: str) -> None:
    """GPT-2's layers are not told that anybody wants them."""
    case = BY_NAME[name]
    model, inputs = ba.convert(case.build(), ba.Weibull(k=2.0)), case.inputs()
    with ba.sampling():
        first, second = (model(**inputs, output_attentions=True).attentions for _ in range(2))
    assert len(first) == 2
    torch.testing.assert_close(first[0].sum(-1), torch.ones(2, 4, 9))
    assert not torch.equal(first[0], second[0])
    assert (first[0][1, :, :, 6:] == 0).all()


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    case = BY_NAME["T5"]
    gradients: list[dict[str, Tensor]] = []
    for checkpointing in (False, True):
        torch.manual_seed(5)
        model = ba.convert(case.build(), ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=1.0))).train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0  # pyright: ignore
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})  # pyright: ignore[reportCallIssue]
        torch.manual_seed(6)
        with ba.record() as latents:
            logits = model(**case.inputs(), use_cache=False).logits
        assert len(latents.local_terms) == case.runs
        ba.elbo(logits.logsumexp(-1), latents, kl_reduction="sum", compare_gradients=False).backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], msg=name)


@pytest.mark.parametrize("reentrant", [False, True], ids=["hooks", "reentrant"])
def test_gradient_checkpointing_repeats_the_draws_of_a_generator(reentrant: bool) -> None:
    case = BY_NAME["BERT"]
    gradients, states = [], []
    for checkpointing in (False, True):
        torch.manual_seed(5)
        model = ba.convert(case.build(), ba.Weibull(k=1.0)).train()
        model.get_input_embeddings().register_forward_hook(lambda *call: call[2].requires_grad_())  # pyright: ignore
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})  # pyright: ignore[reportCallIssue]
        generator = torch.Generator().manual_seed(6)
        torch.manual_seed(7)  # of dropout
        with ba.sampling(generator):
            output = outputs(case.kind)(model(**case.inputs()))
        output.square().sum().backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
        states.append(generator.get_state())
    assert len(gradients[0]) > 20
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], msg=name)
    assert torch.equal(states[0], states[1])


def test_changing_the_implementation_afterwards_is_noticed() -> None:
    model = ba.convert(BY_NAME["BERT"].build(), ba.Weibull(k=10.0))
    model.set_attn_implementation("eager")  # pyright: ignore[reportCallIssue]
    with pytest.raises(RuntimeError, match=r"did not go through Bayesian attention.*'eager'.*before ba\.convert"):
        model(torch.tensor([[3, 4]]))


def test_converting_twice_is_refused() -> None:
    model = ba.convert(BY_NAME["BERT"].build(), ba.Weibull(k=10.0))
    with pytest.raises(ValueError, match="converted already"):
        ba.convert(model, ba.Softmax())


def test_predict_takes_a_dict_batch() -> None:
    case = BY_NAME["ViT"]
    model, inputs = ba.convert(case.build(), ba.Weibull(k=2.0)), case.inputs()
    prediction = ba.predict(model, inputs, samples=16)
    assert prediction.mean.shape == (2, 5)
    assert (prediction.mutual_information > 0).all()
    ba.revert(model)
    ba.convert(model, ba.Softmax())
    with pytest.warns(UserWarning, match="nothing in it is random"):
        assert ba.predict(model, inputs, samples=4).mutual_information.max() < 1e-6


def test_models_of_an_older_transformers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    model = transformers.BertModel(transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    with pytest.raises(
        ValueError, match=r"BertModel is a model of transformers 4\.57\.6, .*Use transformers 5\.0 or newer"
    ):
        ba.convert(model, ba.Weibull())
    monkeypatch.undo()
    assert ba.summary(ba.convert(model, ba.Weibull())).of("converted")

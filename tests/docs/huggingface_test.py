# SPDX-License-Identifier: Apache-2.0
"""docs/huggingface.py on made-up models: what it makes of them, and what it refuses. Needs neither PyTorch nor NumPy;
tests/golden/make_models.py has the real models, and golden_models_test.cpp the networks."""

import contextlib
import io
import pathlib
import sys
from types import SimpleNamespace
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs"))

from huggingface import Refused, bert, convert, gpt2, main, network_type  # noqa: E402


class Tensor:
    """As much of PyTorch's as the script uses; values are lists. `bits`: of a number."""

    def __init__(self, values, storage=None, bits=16):
        self.values, self.storage, self.bits = values, values if storage is None else storage, bits

    def __getitem__(self, which):
        return Tensor(self.values[which], self.storage)

    def dim(self):
        count, values = 0, self.values
        while isinstance(values, list):
            count, values = count + 1, values[0]
        return count

    def t(self):
        return Tensor([list(column) for column in zip(*self.values)], self.storage)

    def reshape(self, size):
        assert size == -1 and self.dim() == 3
        return Tensor([value for plane in self.values for row in plane for value in row], self.storage)

    def roll(self, by, axis):
        assert (by, axis) == (-1, 0)
        return Tensor(self.values[1:] + self.values[:1])

    def equal(self, other):
        return self.values == other.values

    def data_ptr(self):
        return id(self.storage)

    def float(self):
        return Tensor(self.values, self.storage, 32)

    def contiguous(self):
        return self

    def numel(self):
        count, values = 1, self.values
        while isinstance(values, list):
            count, values = count * len(values), values[0]
        return count


class Model:
    def __init__(self, config, shapes):
        self.config, self.tensors = config, {}
        for name, shape in shapes.items():
            self.tensors[name] = made(shape, 1000 * len(self.tensors))

    def state_dict(self):
        return dict(self.tensors)


def made(shape, first=0):
    """Values that count from `first`."""
    count = iter(range(first, first + 10_000))

    def part(extents):
        return [part(extents[1:]) for _ in range(extents[0])] if extents else next(count)
    return Tensor(part(list(shape)))


def modules(prefix, sizes):
    """Weight and bias of layers, by the shapes of the weights."""
    return {f"{prefix}{name}.{kind}": shape if kind == "weight" else shape[:1]
            for name, shape in sizes.items() for kind in ("weight", "bias")}


def gpt2_model(**changes):
    config = dict(model_type="gpt2", vocab_size=7, n_positions=6, n_embd=4, n_layer=2, n_head=2, n_inner=None,
                  activation_function="gelu_new", layer_norm_epsilon=1e-5, scale_attn_weights=True,
                  tie_word_embeddings=True) | changes
    config |= dict(hidden_size=4, num_attention_heads=2, num_hidden_layers=2, max_position_embeddings=6)
    shapes = {"transformer.wte.weight": (7, 4), "transformer.wpe.weight": (6, 4)}
    for b in range(2):
        shapes |= modules(f"transformer.h.{b}.", {"ln_1": (4,), "attn.c_attn": (4, 12), "attn.c_proj": (4, 4),
                                                  "ln_2": (4,), "mlp.c_fc": (4, 16), "mlp.c_proj": (16, 4)})
    model = Model(SimpleNamespace(**config), shapes | modules("transformer.", {"ln_f": (4,)}))
    model.tensors["lm_head.weight"] = model.tensors["transformer.wte.weight"]
    return model


def llama_model(tied=False, **changes):
    config = dict(model_type="llama", vocab_size=9, hidden_size=8, intermediate_size=6, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-5,
                  hidden_act="silu", head_dim=2, attention_bias=False, mlp_bias=False, tie_word_embeddings=tied,
                  rope_parameters={"rope_type": "default", "rope_theta": 10000.0}) | changes
    shapes = {"model.embed_tokens.weight": (9, 8), "model.norm.weight": (8,), "lm_head.weight": (9, 8)}
    for b in range(2):
        sizes = {"input_layernorm": (8,), "self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8),
                 "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8), "post_attention_layernorm": (8,),
                 "mlp.gate_proj": (6, 8), "mlp.up_proj": (6, 8), "mlp.down_proj": (8, 6)}
        shapes |= {f"model.layers.{b}.{name}.weight": shape for name, shape in sizes.items()}
    model = Model(SimpleNamespace(**config), shapes)
    if tied:
        model.tensors["lm_head.weight"] = model.tensors["model.embed_tokens.weight"]
    return model


def bert_model(kind="bert", **changes):
    roberta = kind != "bert"
    config = dict(model_type=kind, vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
                  intermediate_size=5, max_position_embeddings=7, hidden_act="gelu", layer_norm_eps=1e-12,
                  num_labels=3, pad_token_id=1 if roberta else 0, position_embedding_type="absolute",
                  is_decoder=False) | changes
    inner = "roberta." if roberta else "bert."
    shapes = {f"{inner}embeddings.{name}_embeddings.weight": shape
              for name, shape in {"word": (8, 4), "position": (7, 4), "token_type": (2, 4)}.items()}
    shapes |= modules(f"{inner}embeddings.", {"LayerNorm": (4,)})
    square = {name: (4, 4) for name in ("self.query", "self.key", "self.value", "output.dense")}
    shapes |= modules(f"{inner}encoder.layer.0.attention.", square | {"output.LayerNorm": (4,)})
    shapes |= modules(f"{inner}encoder.layer.0.", {"intermediate.dense": (5, 4), "output.dense": (4, 5),
                                                   "output.LayerNorm": (4,)})
    head = ("classifier.dense", "classifier.out_proj") if roberta else ("bert.pooler.dense", "classifier")
    return Model(SimpleNamespace(**config), shapes | modules("", dict(zip(head, [(4, 4), (3, 4)]))))


def vit_model(old=False, **changes):
    config = dict(model_type="vit", image_size=6, patch_size=2, num_channels=2, hidden_size=4, num_hidden_layers=1,
                  num_attention_heads=2, intermediate_size=5, num_labels=3, hidden_act="gelu", layer_norm_eps=1e-12,
                  qkv_bias=True) | changes
    names = ("attention.attention.query", "attention.attention.key", "attention.attention.value",
             "attention.output.dense", "intermediate.dense", "output.dense") if old else (
                 "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "mlp.fc1", "mlp.fc2")
    shapes = {"vit.embeddings.cls_token": (1, 1, 4), "vit.embeddings.position_embeddings": (1, 10, 4)}
    shapes |= modules("vit.", {"embeddings.patch_embeddings.projection": (4, 2, 2, 2), "layernorm": (4,)})
    sizes = {"layernorm_before": (4,), "layernorm_after": (4,)}
    sizes |= zip(names, 4 * [(4, 4)] + [(5, 4), (4, 5)])
    shapes |= modules("vit.encoder.layer.0." if old else "vit.layers.0.", sizes)
    return Model(SimpleNamespace(**config), shapes | modules("", {"classifier": (3, 4)}))


def check(condition, what):
    if not condition:
        sys.exit(f"huggingface_test.py: {what}")


def is_equal(found, expected):
    check(found == expected, f"found {found}, expected {expected}")


def refuses(part, kind, model, missing=(), positions=None):
    """`part` begins with the name of what is in the way."""
    try:
        convert(kind, model, missing, positions)
    except Refused as what:
        check(part in str(what), f"{what}: expected {part}")
    else:
        check(False, f"{kind} was converted, expected {part}")


def good_models():
    model = gpt2_model()
    tensors, said = convert("gpt2", model, positions=5)
    of = model.tensors
    is_equal(list(tensors)[:4], ["0.weight", "1.weight", "2.0.0.weight", "2.0.0.bias"])
    is_equal((len(tensors), list(tensors)[-1], said), (2 + 2 * 12 + 2, "4.bias", []))
    is_equal(tensors["0.weight"].values, of["transformer.wte.weight"].values)
    is_equal(tensors["1.weight"].values, of["transformer.wpe.weight"].values[:5])
    weight = of["transformer.h.1.attn.c_attn.weight"].values
    is_equal(tensors["3.0.1.in_proj_weight"].values, [[weight[i][o] for i in range(4)] for o in range(12)])
    is_equal(tensors["3.1.3.bias"].values, of["transformer.h.1.mlp.c_proj.bias"].values)
    is_equal(network_type("gpt2", model.config, 5), "pergrad::models::gpt2<5, 2, 4, 2, 7>")
    old = {name.removeprefix("transformer."): value for name, value in of.items()}
    old |= {"h.0.attn.bias": made((1,)), "h.0.attn.masked_bias": made((1,))}
    is_equal([value.values for value in gpt2(old, 5).values()], [value.values for value in tensors.values()])

    model = llama_model()
    tensors, _ = convert("llama", model)
    is_equal((len(tensors), list(tensors)[-2:]), (1 + 2 * 9 + 2, ["3.weight", "4.weight"]))
    is_equal(tensors["2.mlp.up_proj.weight"].values, model.tensors["model.layers.1.mlp.up_proj.weight"].values)
    is_equal(tensors["4.weight"].values, model.tensors["lm_head.weight"].values)
    size = (".positions = 2'048, .blocks = 2, .features = 8, .heads = 4, .key_value_heads = 2, .feed_forward = 6, "
            ".vocabulary = 9, .rotary_base = {}, .per_epsilon = 100'000")
    whole = f"pergrad::models::llama<pergrad::models::llama_size{{{size}}}>"
    is_equal(network_type("llama", model.config), whole.replace("{}", "10'000"))
    of_4 = llama_model(tied=True, rope_parameters=None, rope_scaling=None, rope_theta=500000.0, head_dim=None)
    of_4.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = made((1,))
    is_equal(list(convert("llama", of_4)[0])[-1], "3.weight")
    is_equal(network_type("llama", of_4.config), whole.replace("{}", "500'000").replace("}>", ", .tied = true}>"))

    for kind, positions, table in (("bert", 7, slice(0, 7)), ("roberta", 5, slice(2, 7))):
        model = bert_model(kind)
        tensors, said = convert("bert", model, ["classifier.weight"])
        rows = model.tensors[f"{kind}.embeddings.position_embeddings.weight"].values
        is_equal(tensors["1.weight"].values, rows[table])
        is_equal(said, ["random, as the model's files do not have them: classifier.weight"])
        is_equal((len(tensors), list(tensors)[-1]), (5 + 16 + 4, "7.2.bias"))
        is_equal(network_type("bert", model.config), "pergrad::models::bert_classifier<pergrad::models::bert_size{"
                 f".positions = {positions}, .blocks = 1, .features = 4, .heads = 2, .feed_forward = 5, "
                 ".vocabulary = 8, .classes = 3, .per_epsilon = 1'000'000'000'000}>")
    is_equal(len(bert(bert_model().tensors, 5)["1.weight"].values), 5)

    new, old = (convert("vit", vit_model(old)) for old in (False, True))
    for tensors, _ in (new, old):
        is_equal((len(tensors), list(tensors)[-1]), (4 + 16 + 4, "8.0.bias"))
        is_equal(tensors["4.weight"].values[-1], [1000, 1001, 1002, 1003])  # of the class token
    is_equal(list(new[0]), list(old[0]))
    is_equal(network_type("vit", vit_model().config), "pergrad::models::vit<pergrad::models::vit_size{.image = 6, "
             ".patch = 2, .channels = 2, .blocks = 1, .features = 4, .heads = 2, .feed_forward = 5, .classes = 3, "
             ".per_epsilon = 1'000'000'000'000}>")


def settings():
    llama3 = {"rope_type": "llama3", "factor": 32.0, "rope_theta": 500000.0}
    changes = {
        "gpt2": (gpt2_model, {"model_type": "gpt_neo", "activation_function": "relu", "n_inner": 8,
                              "layer_norm_epsilon": 1e-6, "scale_attn_weights": False,
                              "scale_attn_by_inverse_layer_idx": True, "add_cross_attention": True,
                              "tie_word_embeddings": False, "quantization_config": {"bits": 4}}),
        "llama": (llama_model, {"model_type": "mistral", "hidden_act": "gelu", "attention_bias": True, "mlp_bias": True,
                                "head_dim": 4, "rms_norm_eps": 0.3, "rope_parameters": llama3,
                                "tie_word_embeddings": True}),
        "bert": (bert_model, {"model_type": "distilbert", "hidden_act": "gelu_new", "is_decoder": True,
                              "position_embedding_type": "relative_key", "add_cross_attention": True,
                              "layer_norm_eps": 0.3}),
        "vit": (vit_model, {"model_type": "deit", "hidden_act": "quick_gelu", "qkv_bias": False, "head_dim": 1,
                            "image_size": [6, 8], "patch_size": [2, 1], "layer_norm_eps": 0.3}),
    }
    for kind, (build, wrong) in changes.items():
        convert(kind, build())
        for name, value in wrong.items():
            refuses(f"{name} = {value!r}: ", kind, build(**{name: value}))
    refuses("pad_token_id = 0: ", "bert", bert_model("roberta", pad_token_id=0))
    refuses("layer_norm_eps = 0: ", "vit", vit_model(layer_norm_eps=0))
    scaled = {"type": "linear", "factor": 2.0}
    refuses(f"rope_scaling = {scaled!r}: ", "llama", llama_model(rope_parameters=None, rope_scaling=scaled))
    partial = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    refuses(f"rope_parameters = {partial!r}: ", "llama", llama_model(rope_parameters=partial))
    refuses("rope_theta = 2.5: ", "llama", llama_model(rope_parameters={"rope_theta": 2.5}))
    for kind, model, most in (("gpt2", gpt2_model(), 6), ("llama", llama_model(), 2048), ("bert", bert_model(), 7),
                              ("bert", bert_model("roberta"), 5)):
        for positions in (0, most + 1):
            refuses(f"{positions} positions: the model has {most}", kind, model, positions=positions)
        convert(kind, model, positions=most)
    refuses("10 positions: ", "vit", vit_model(), positions=10)


def tensors_left_or_missing():
    untied = gpt2_model()
    untied.tensors["lm_head.weight"] = made((7, 4), 1)
    refuses("lm_head.weight is not wte.weight", "gpt2", untied)
    untied.tensors["lm_head.weight"] = made((7, 4))
    convert("gpt2", untied)     # another tensor of the same numbers
    refuses("tie_word_embeddings = False: lm_head.weight", "llama", llama_model(True, tie_word_embeddings=False))
    for kind, build, name in (("gpt2", gpt2_model, "transformer.h.1.crossattention.c_attn.weight"),
                              ("llama", llama_model, "model.layers.0.self_attn.q_norm.weight"),
                              ("llama", llama_model, "lm_head.bias"),
                              ("bert", bert_model, "bert.embeddings.more.weight"),
                              ("vit", vit_model, "vit.pooler.dense.weight")):
        model = build()
        model.tensors[name] = made((4,))
        refuses(f"no place for {name}", kind, model)
    for kind, build in (("gpt2", gpt2_model), ("llama", llama_model), ("bert", bert_model), ("vit", vit_model)):
        for name in list(build().tensors):
            if name == "lm_head.weight":
                continue
            if name.startswith(("classifier.", "bert.pooler.")):
                convert(kind, build(), [name])
            else:
                refuses(f"the model's files have no {name}", kind, build(), [name])
            model = build()
            del model.tensors[name]
            refuses(f"there is no tensor {name}", kind, model)


def whole_program(version, asks_by, stated, says):
    """A model in half precision: it is asked for in float32, written so, and the program says so."""
    model = gpt2_model(**stated)
    asked, saved = {}, {}

    def from_pretrained(name, output_loading_info, **more):
        asked.update(more)
        return model, {"missing_keys": []}
    modules = {
        "torch": SimpleNamespace(float32="float32"),
        "transformers": SimpleNamespace(
            __version__=version, AutoConfig=SimpleNamespace(from_pretrained=lambda name: model.config),
            AutoModelForCausalLM=SimpleNamespace(from_pretrained=from_pretrained)),
        "safetensors": SimpleNamespace(), "safetensors.torch": SimpleNamespace(
            save_file=lambda tensors, path: saved.update({path: tensors}))}
    printed = io.StringIO()
    with (mock.patch.dict(sys.modules, modules), contextlib.redirect_stdout(printed),
          mock.patch.object(sys, "argv", ["huggingface.py", "gpt2", "some/model", "out.safetensors"])):
        main()
    is_equal(asked, {asks_by: "float32"})
    is_equal({value.bits for value in saved["out.safetensors"].values()}, {32})
    count = sum(value.numel() for value in model.tensors.values()) - 7 * 4  # the unembedding is the embedding's table
    is_equal(printed.getvalue().splitlines(), [
        "pergrad::models::gpt2<6, 2, 4, 2, 7>", f"{count} parameters",
        f"the model's configuration says {says}; out.safetensors has float32"])


good_models()
settings()
whole_program("4.57.1", "torch_dtype", {"torch_dtype": "torch.bfloat16"}, "bfloat16")
whole_program("5.0.0", "dtype", {"dtype": "torch.float16"}, "float16")
whole_program("5.0.0", "dtype", {}, "no type")
tensors_left_or_missing()

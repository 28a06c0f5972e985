#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# docs/huggingface.py KIND MODEL FILE [POSITIONS] - weights of Hugging Face's transformers for the networks of
# pergrad/models.hpp
"""KIND is gpt2, llama, bert (also for RoBERTa) or vit; MODEL a name or a folder; FILE the safetensors file to write;
POSITIONS those of the network, if it has fewer than the model (not vit).

Needs PyTorch, transformers 4 or 5 and safetensors. A model that the network cannot be is refused, with the setting or
the tensor that is in the way. Numbers become float32. Prints the type of the network. The functions gpt2 to vit take a
state dict and return tensors with pergrad's names, in the order of the network's parameters.
"""

import re
import sys


class Refused(Exception):
    """Says what of a model the network has no place for."""


class Tensors:
    """What of a state dict has a name that begins with `prefix`. All parts of it know what was taken."""

    def __init__(self, state, prefix="", taken=None):
        self.state, self.prefix, self.taken = state, prefix, set() if taken is None else taken

    def __getitem__(self, name):
        if self.prefix + name not in self.state:
            raise Refused(f"there is no tensor {self.prefix + name}; names are those of transformers 4.57 and 5.24")
        self.taken.add(self.prefix + name)
        return self.state[self.prefix + name]

    def under(self, prefix):
        return Tensors(self.state, self.prefix + prefix, self.taken)

    def has(self, prefix):
        return any(name.startswith(self.prefix + prefix) for name in self.state)

    def count(self):
        """Of blocks, by the numbers that names begin with."""
        names = (name[len(self.prefix):] for name in self.state if name.startswith(self.prefix))
        return 1 + max((int(name.split(".")[0]) for name in names), default=-1)

    def end(self, result):
        """Nothing may be left but buffers that hold no weights."""
        buffer = re.compile(r"\.attn\.(masked_)?bias$|\.(position_ids|token_type_ids|rotary_emb\.inv_freq)$")
        left = [name for name in self.state if name not in self.taken and not buffer.search("." + name)]
        if left:
            raise Refused(f"the network has no place for {', '.join(left[:4])}{', ...' if len(left) > 4 else ''}")
        return result


def gpt2(state, positions=None):
    """GPT2LMHeadModel -> models::gpt2<Positions, ...>. Its projections are [in, out] and turned round."""
    parts = {"ln_1.": "0.0.", "attn.c_attn.": "0.1.in_proj_", "attn.c_proj.": "0.1.out_proj.", "ln_2.": "1.0.",
             "mlp.c_fc.": "1.1.", "mlp.c_proj.": "1.3."}
    whole = Tensors(state)
    inner = whole.under("transformer." if whole.has("transformer.") else "")
    blocks = inner.under("h.").count()
    result = {"0.weight": inner["wte.weight"], "1.weight": inner["wpe.weight"][:positions]}
    for b in range(blocks):
        for theirs, ours in parts.items():
            for kind in ("weight", "bias"):
                value = inner[f"h.{b}.{theirs}{kind}"]
                result[f"{2 + b}.{ours}{kind}"] = value.t() if value.dim() == 2 else value
    for kind in ("weight", "bias"):
        result[f"{2 + blocks}.{kind}"] = inner[f"ln_f.{kind}"]
    if whole.has("lm_head.weight") and not whole["lm_head.weight"].equal(inner["wte.weight"]):
        raise Refused("lm_head.weight is not wte.weight: the network's logits are products with the table")
    return whole.end(result)


def llama(state):
    """LlamaForCausalLM -> models::llama<...>: places for prefixes, and nothing else. A tied head is none."""
    whole = Tensors(state)
    inner = whole.under("model." if whole.has("model.") else "")
    blocks = inner.under("layers.").count()
    modules = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
               "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    result = {"0.weight": inner["embed_tokens.weight"]}
    result |= {f"{1 + b}.{name}.weight": inner[f"layers.{b}.{name}.weight"] for b in range(blocks) for name in modules}
    result[f"{1 + blocks}.weight"] = inner["norm.weight"]
    if whole.has("lm_head.weight") and whole["lm_head.weight"].data_ptr() != inner["embed_tokens.weight"].data_ptr():
        result[f"{2 + blocks}.weight"] = whole["lm_head.weight"]
    return whole.end(result)


def encoder(result, layers, first, parts):
    """Blocks of an encoder from place `first` on; returns the place behind them."""
    result |= {f"{first + b}.{ours}.{kind}": layers[f"{b}.{theirs}.{kind}"]
               for b in range(layers.count()) for ours, theirs in parts.items() for kind in ("weight", "bias")}
    return first + layers.count()


def bert(state, positions=None):
    """BertForSequenceClassification, RobertaForSequenceClassification -> models::bert_classifier<...>. The second token
    type's row has no place; RoBERTa's positions begin behind its padding id, at row 2."""
    whole = Tensors(state)
    roberta = whole.has("roberta.")
    inner = whole.under("roberta." if roberta else "bert.")
    table = inner["embeddings.position_embeddings.weight"][2 if roberta else 0:]
    result = {"0.weight": inner["embeddings.word_embeddings.weight"], "1.weight": table[:positions],
              "2.bias": inner["embeddings.token_type_embeddings.weight"][0]}
    for kind in ("weight", "bias"):
        result[f"3.{kind}"] = inner[f"embeddings.LayerNorm.{kind}"]
    same = ["attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
            "output.LayerNorm"]
    parts = {f"attention.{name}": f"attention.self.{name}" for name in ("query", "key", "value")}
    end = encoder(result, inner.under("encoder.layer."), 4, parts | {name: name for name in same})
    dense, out = (("classifier.dense", "classifier.out_proj") if roberta else ("bert.pooler.dense", "classifier"))
    for place, module in ((0, dense), (2, out)):    # behind take_positions and mean_over_positions
        result |= {f"{end + 2}.{place}.{kind}": whole[f"{module}.{kind}"] for kind in ("weight", "bias")}
    return whole.end(result)


def vit(state):
    """ViTForImageClassification -> models::vit<...>. The class token stands behind the patches."""
    whole = Tensors(state)
    inner = whole.under("vit.")
    patches = "embeddings.patch_embeddings.projection"
    result = {f"0.{kind}": inner[f"{patches}.{kind}"] for kind in ("weight", "bias")}
    result["3.bias"] = inner["embeddings.cls_token"].reshape(-1)
    result["4.weight"] = inner["embeddings.position_embeddings"][0].roll(-1, 0)
    parts = {"layernorm_before": "layernorm_before", "attention.query": "attention.q_proj",
             "attention.key": "attention.k_proj", "attention.value": "attention.v_proj",
             "attention.output.dense": "attention.o_proj", "layernorm_after": "layernorm_after",
             "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}
    old = inner.has("encoder.layer.")   # transformers 4
    if old:
        parts = {name: re.sub(r"attention\.(query|key|value)", r"attention.\g<0>", name) for name in parts}
    end = encoder(result, inner.under("encoder.layer." if old else "layers."), 5, parts)
    for place, module in ((end, "vit.layernorm"), (f"{end + 2}.0", "classifier")):  # select_last is between them
        result |= {f"{place}.{kind}": whole[f"{module}.{kind}"] for kind in ("weight", "bias")}
    return whole.end(result)


# Settings that a network has no choice of, and what it has; one that is not there has the first value.
FIXED = {
    "gpt2": {"model_type": ["gpt2"], "activation_function": ["gelu_new", "gelu_pytorch_tanh"],
             "scale_attn_weights": [True], "scale_attn_by_inverse_layer_idx": [False], "add_cross_attention": [False],
             "tie_word_embeddings": [True], "layer_norm_epsilon": [1e-5]},
    "llama": {"model_type": ["llama"], "hidden_act": ["silu", "swish"], "attention_bias": [False], "mlp_bias": [False]},
    "bert": {"model_type": ["bert", "roberta", "xlm-roberta", "camembert"], "hidden_act": ["gelu", "gelu_python"],
             "position_embedding_type": ["absolute"], "is_decoder": [False], "add_cross_attention": [False]},
    "vit": {"model_type": ["vit"], "hidden_act": ["gelu", "gelu_python"], "qkv_bias": [True]},
}


def network_type(kind, config, positions=None):
    """The network in C++, of a configuration of transformers."""
    def require(name, *values):
        found = getattr(config, name, values[0])
        if found not in values:
            raise Refused(f"{name} = {found!r}: the network has {values[0]!r}")

    def inverse(name):
        value = getattr(config, name)
        whole = round(1 / value) if value > 0 else 0
        if whole < 1 or abs(whole * value - 1) > 1e-6:      # 1e-5 may have been a float
            raise Refused(f"{name} = {value!r}: the network has 1 / a whole number")
        return whole

    for name, values in FIXED[kind].items():
        require(name, *values)
    require("quantization_config", None)
    require("head_dim", config.hidden_size // config.num_attention_heads, None)
    roberta = kind == "bert" and config.model_type != "bert"
    sizes = {"blocks": config.num_hidden_layers, "features": config.hidden_size, "heads": config.num_attention_heads}
    if kind == "vit":
        if positions is not None:
            raise Refused(f"{positions} positions: a network of images has those of its patches")
        for name in ("image_size", "patch_size"):
            if not isinstance(getattr(config, name), int):
                raise Refused(f"{name} = {getattr(config, name)!r}: the network has one number, for squares")
        sizes = {"image": config.image_size, "patch": config.patch_size, "channels": config.num_channels} | sizes
    else:
        if roberta:
            require("pad_token_id", 1)      # positions begin behind it
        most = config.max_position_embeddings - (2 if roberta else 0)
        if positions is not None and not 1 <= positions <= most:
            raise Refused(f"{positions} positions: the model has {most}")
        sizes = {"positions": positions or most} | sizes
    if kind == "gpt2":
        require("n_inner", 4 * config.hidden_size, None)
        return f"pergrad::models::gpt2<{', '.join(map(str, [*sizes.values(), config.vocab_size]))}>"
    if kind == "llama":
        sizes["key_value_heads"] = config.num_key_value_heads or config.num_attention_heads
    sizes |= {"feed_forward": config.intermediate_size} | ({"vocabulary": config.vocab_size} if kind != "vit" else {})
    if kind == "llama":
        name = "rope_parameters" if getattr(config, "rope_parameters", None) else "rope_scaling"    # of 5 or of 4
        rope = getattr(config, name, None) or {}
        if rope.get("rope_type", rope.get("type", "default")) != "default" or rope.get("partial_rotary_factor", 1) != 1:
            raise Refused(f"{name} = {rope!r}: the network's rotary positions are not scaled")
        base = rope.get("rope_theta", getattr(config, "rope_theta", 10_000))
        if base != int(base) or base < 2:
            raise Refused(f"rope_theta = {base!r}: the network has a whole number")
        sizes |= {"rotary_base": int(base), "per_epsilon": inverse("rms_norm_eps")}
    else:
        sizes |= {"classes": config.num_labels, "per_epsilon": inverse("layer_norm_eps")}
    fields = [f".{name} = " + f"{value:,}".replace(",", "'") for name, value in sizes.items()]
    if kind == "llama" and config.tie_word_embeddings:
        fields.append(".tied = true")
    network = "bert_classifier" if kind == "bert" else kind
    return f"pergrad::models::{network}<pergrad::models::{kind}_size{{{', '.join(fields)}}}>"


def convert(kind, model, missing=(), positions=None):
    """Tensors of a model that was loaded, and what else to say. `missing`: names that its files had nothing for."""
    config = model.config
    network_type(kind, config, positions)
    for name in sorted(missing):
        if kind in ("gpt2", "llama") or not name.startswith(("classifier.", "bert.pooler.")):
            raise Refused(f"the model's files have no {name}")
    tensors = KINDS[kind][0](model.state_dict(), *([positions] if kind in ("gpt2", "bert") else []))
    if kind == "llama" and config.tie_word_embeddings == (f"{2 + config.num_hidden_layers}.weight" in tensors):
        raise Refused(f"tie_word_embeddings = {config.tie_word_embeddings!r}: lm_head.weight says otherwise")
    said = [f"random, as the model's files do not have them: {', '.join(sorted(missing))}"] if missing else []
    return {name: value.float().contiguous() for name, value in tensors.items()}, said


KINDS = {"gpt2": (gpt2, "AutoModelForCausalLM"), "llama": (llama, "AutoModelForCausalLM"),
         "bert": (bert, "AutoModelForSequenceClassification"), "vit": (vit, "AutoModelForImageClassification")}


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in KINDS or not all(word.isdigit() for word in sys.argv[4:]):
        sys.exit(__doc__)
    kind, name, path, *rest = sys.argv[1:]
    positions = int(rest[0]) if rest else None
    import torch
    import transformers
    from safetensors.torch import save_file
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        stated = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        print(network_type(kind, config, positions))    # before weights are fetched
        # float32 holds float16 and bfloat16; "auto" would round the file's numbers to what the configuration says.
        wanted = {"dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype": torch.float32}
        model, info = getattr(transformers, KINDS[kind][1]).from_pretrained(name, output_loading_info=True, **wanted)
        tensors, said = convert(kind, model, info["missing_keys"], positions)
    except Refused as what:
        sys.exit(f"huggingface.py: {name}: {what}")
    save_file(tensors, path)
    stated = str(stated).removeprefix("torch.") if stated else "no type"
    print(*said, f"{sum(value.numel() for value in tensors.values())} parameters", sep="\n")
    print(f"the model's configuration says {stated}; {path} has float32")


if __name__ == "__main__":
    main()

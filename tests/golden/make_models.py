#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tests/golden/make_models.py - Hugging Face's transformers as the oracle of <pergrad/models/transformers.hpp>
"""Writes data/models.json (numbers), data/models_*.safetensors (their parameters) and models_cases.inc.

    python3 make_models.py      needs PyTorch (CPU), transformers and safetensors

Small models of random weights, in float64. Their parameters go through `docs/huggingface.py`, which is how a user takes
weights over; gradients of single samples come from autograd and go the same way, as every step of it is linear. Before
a case is written, the gradients of the samples are compared with the gradient of the batch's sum, to 1e-12.
"""

import pathlib
import platform
import statistics
import sys

import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "docs"))

from huggingface import bert, gpt2, llama, vit  # noqa: E402
from make_golden import json_value              # noqa: E402

CE, TOKENS = "pergrad::cross_entropy", "pergrad::token_cross_entropy<>"


# transformers computes LLaMA's norms and angles, and softmax in its own attention, in float32, whatever the model's
# type. Here they are as exact as the rest; attention is PyTorch's.


def rms_norm(self, x):
    return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


transformers.models.llama.modeling_llama.LlamaRMSNorm.forward = rms_norm


class Rotary(torch.nn.Module):

    def __init__(self, base, width):
        super().__init__()
        self.frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def drawn(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) * 0.5)
    return model.double().eval()


def llama_model(tied):
    config = transformers.LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=6, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=5,
                                      rms_norm_eps=1e-5, tie_word_embeddings=tied, attn_implementation="sdpa",
                                      rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    model = drawn(transformers.LlamaForCausalLM(config), 1)
    model.model.rotary_emb = Rotary(500.0, 2)
    return model


def gpt2_model():
    config = transformers.GPT2Config(vocab_size=7, n_positions=6, n_embd=4, n_layer=2, n_head=2,
                                     attn_implementation="sdpa")
    return drawn(transformers.GPT2LMHeadModel(config), 2)


def bert_model(roberta):
    sizes = dict(vocab_size=8, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=5,
                 num_labels=3, attn_implementation="sdpa")
    if roberta:
        config = transformers.RobertaConfig(**sizes, max_position_embeddings=7, type_vocab_size=1, pad_token_id=1,
                                            layer_norm_eps=1e-5)
        return drawn(transformers.RobertaForSequenceClassification(config), 3)
    config = transformers.BertConfig(**sizes, max_position_embeddings=5, type_vocab_size=2, pad_token_id=0,
                                     layer_norm_eps=1e-12)
    return drawn(transformers.BertForSequenceClassification(config), 4)


def vit_model():
    config = transformers.ViTConfig(image_size=6, patch_size=2, num_channels=2, hidden_size=4, num_hidden_layers=2,
                                    num_attention_heads=2, intermediate_size=5, num_labels=3, layer_norm_eps=1e-12,
                                    attn_implementation="sdpa")
    return drawn(transformers.ViTForImageClassification(config), 5)


def logits_of(model, x, length):
    """Of one sample; what lies behind its length is padding of the batch, and cut off here."""
    if x.is_floating_point():
        return model(pixel_values=x[None]).logits[0]
    return model(input_ids=x[None, :length]).logits[0]


def case(model, renamed, inputs, targets, lengths=None):
    parameters = dict(model.named_parameters())
    rows, outputs, losses = [], [], []
    for b, (x, t) in enumerate(zip(inputs, targets)):
        y = logits_of(model, x, lengths[b] if lengths else x.shape[0])
        loss = F.cross_entropy(y, t)
        slopes = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.reshape(-1) for g in renamed(dict(zip(parameters, slopes))).values()]))
        outputs.append(y.detach().reshape(-1))
        losses.append(loss.detach())
    gradients = torch.stack(rows)
    together = [F.cross_entropy(logits_of(model, x, lengths[b] if lengths else x.shape[0]), t)
                for b, (x, t) in enumerate(zip(inputs, targets))]
    slopes = torch.autograd.grad(sum(together), list(parameters.values()), allow_unused=True, materialize_grads=True)
    summed = torch.cat([g.reshape(-1) for g in renamed(dict(zip(parameters, slopes))).values()])
    assert float((summed - gradients.sum(0)).abs().max() / summed.abs().max()) < 1e-12
    # The same from a padded batch, where the model masks what is behind the lengths itself.
    if lengths:
        mask = torch.arange(inputs.shape[1])[None, :] < torch.tensor(lengths)[:, None]
        padded = torch.where(mask, inputs, model.config.pad_token_id)
        logits = model(input_ids=padded, attention_mask=mask.long()).logits
        assert float((logits.detach() - torch.stack(outputs)).abs().max()) < 1e-12
    norms = gradients.norm(dim=1)
    clip = float(f"{0.8 * statistics.median(norms.tolist()):.6g}")
    tensors = {name: value.detach().clone().contiguous() for name, value in renamed(parameters).items()}
    fields = dict(batch=len(inputs), input_size=inputs[0].numel(), parameter_count=gradients.shape[1],
                  inputs=inputs.reshape(len(inputs), -1), targets=targets.reshape(len(inputs), -1),
                  parameters=torch.cat([value.reshape(-1) for value in tensors.values()]), l2_clip_norm=clip,
                  outputs=torch.stack(outputs), losses=torch.stack(losses), squared_norms=norms**2, gradients=gradients,
                  clipped_sum=((clip / norms).clamp(max=1)[:, None] * gradients).sum(0))
    if lengths:
        fields["lengths"] = torch.tensor(lengths)
    return fields, tensors


LLAMA = ("pergrad::models::llama_size{.positions = 5, .blocks = 2, .features = 8, .heads = 4, .key_value_heads = 2, "
         ".feed_forward = 6, .vocabulary = 9, .rotary_base = 500, .per_epsilon = 100'000")
BERT = ("pergrad::models::bert_size{.positions = 5, .blocks = 2, .features = 4, .heads = 2, .feed_forward = 5, "
        ".vocabulary = 8, .classes = 3")
VIT = ("pergrad::models::vit_size{.image = 6, .patch = 2, .channels = 2, .blocks = 2, .features = 4, .heads = 2, "
       ".feed_forward = 5, .classes = 3}")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = lambda count, vocabulary, positions: torch.randint(2, vocabulary, (count, positions))   # noqa: E731
    images = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    classes = torch.tensor([0, 2, 1])
    cases = {
        "models_gpt2": ("gpt2<5, 2, 4, 2, 7>", TOKENS, gpt2_model(), lambda s: gpt2(s, 5),
                        (ids(3, 7, 5), ids(3, 7, 5))),
        "models_llama": (f"llama<{LLAMA}}}>", TOKENS, llama_model(False), llama, (ids(3, 9, 5), ids(3, 9, 5))),
        "models_llama_tied": (f"llama<{LLAMA}, .tied = true}}>", TOKENS, llama_model(True), llama,
                              (ids(2, 9, 5), ids(2, 9, 5))),
        "models_bert": (f"bert_classifier<{BERT}}}>", CE, bert_model(False), lambda s: bert(s, 5),
                        (ids(3, 8, 5), classes, [5, 2, 4])),
        "models_roberta": (f"bert_classifier<{BERT}, .per_epsilon = 100'000}}>", CE, bert_model(True),
                           lambda s: bert(s, 5), (ids(3, 8, 5), classes, [3, 5, 1])),
        "models_vit": (f"vit<{VIT}>", CE, vit_model(), vit, (images, classes)),
    }
    made_by = dict(torch=torch.__version__, transformers=transformers.__version__, python=platform.python_version())
    parts, lines = [], ["// SPDX-License-Identifier: Apache-2.0",
                        "// tests/golden/models_cases.inc - networks of data/models.json; made by make_models.py",
                        "// clang-format off"]
    for name, (network, loss, model, renamed, data) in cases.items():
        fields, tensors = case(model, renamed, *data)
        save_file(tensors, HERE / "data" / f"{name}.safetensors")
        body = ",\n".join(f'"{key}": {json_value(value)}' for key, value in fields.items())
        parts.append(f'"{name}": {{\n{body}}}')
        lines.append(f"PERGRAD_GOLDEN({name}, (pergrad::models::{network}::rebind<double>), {loss})")
        print(name, fields["parameter_count"], "parameters")
    (HERE / "data" / "models.json").write_text(
        f'{{"made_by": {json_value(made_by)},\n"cases": {{\n' + ",\n".join(parts) + "}}\n")
    (HERE / "models_cases.inc").write_text("\n".join(lines + ["// clang-format on", ""]))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_sequence_cases.py - cases of embeddings, recurrent nets, attention and samples of varying length
"""Adds to GROUPS of golden_cases.py."""

from golden_cases import BCE, CE, MSE, add, cycle
from golden_layers import (conv1d, flatten, frozen, gelu, gelu_tanh, layer_norm, linear, lora, max_pool1d, parallel,
                           relu, repeat, residual, rms_norm, tanh, tied, tokens, transpose)
from golden_sequences import (cross_attention, embedding, embedding_bag, learned_positions, mean_over_positions,
                              multihead_attention, recurrent, select_last, sequence_bias, sinusoidal_positions,
                              take_positions, transformer_encoder_layer, unembedding, with_state)

# ---------------------------------------------------------------------------------------------------------------------
# Embeddings: a vocabulary smaller than the batch's ids, so that ids repeat
# ---------------------------------------------------------------------------------------------------------------------


def all_the_same(inputs, targets, parameters):
    inputs[0] = 3


def padding_in_front(inputs, targets, parameters):
    """As PyTorch initialises: the padding row is zero."""
    inputs[0, :2], inputs[1, :1], inputs[-1, -1] = 0, 0, 0
    parameters[0][0] = 0


def padding_row_not_zero(inputs, targets, parameters):
    """Loaded weights may have anything there: it is read, and not trained."""
    inputs[:, 1], inputs[0, 3] = 2, 2


def only_padding(inputs, targets, parameters):
    inputs[0], inputs[1, 2:] = 0, 0


def embed(name, layers, loss, batch, positions=5, vocabulary=7, **options):
    add("embedding", f"embed_{name}", (positions,), layers, loss, batch, vocabulary=vocabulary, **options)


embed("one_position", [embedding(7, 3), flatten, linear(2)], MSE, 3, positions=1)
embed("flattened", [embedding(7, 3), flatten, linear(2)], MSE, 3)
embed("alone", [embedding(7, 2), flatten], MSE, 2)
embed("one_feature", [embedding(7, 1), flatten, linear(3)], CE, 3)
embed("mean", [embedding(7, 4), mean_over_positions, linear(3)], CE, 4)
embed("last", [embedding(7, 4), select_last, linear(2)], MSE, 3)
embed("repeated", [embedding(7, 3), tanh, mean_over_positions, linear(2)], MSE, 3, tweak=all_the_same)
embed("many_repeats", [embedding(2, 3), linear(3), tanh, mean_over_positions, linear(2)], MSE, 2, positions=9,
      vocabulary=2)
embed("mostly_unused", [embedding(40, 3), linear(2), tanh, flatten], MSE, 2, vocabulary=40)
embed("padding", [embedding(7, 3, padding_idx=0), flatten, linear(2)], MSE, 3, tweak=padding_in_front)
embed("padding_mean", [embedding(7, 3, padding_idx=0), mean_over_positions, linear(3)], CE, 3, tweak=padding_in_front)
embed("padding_row_not_zero", [embedding(7, 3, padding_idx=2), tanh, flatten, linear(2)], MSE, 3,
      tweak=padding_row_not_zero)
embed("frozen", [frozen(embedding(7, 3)), linear(3), tanh, flatten], MSE, 2)
embed("bag_mean", [embedding_bag(7, 4), linear(3)], CE, 4)
embed("bag_sum", [embedding_bag(7, 4, sum=True), linear(2)], MSE, 3)
embed("bag_mean_repeated", [embedding_bag(7, 3), tanh, linear(2)], MSE, 3, tweak=all_the_same)
embed("bag_mean_padding", [embedding_bag(7, 3, padding_idx=0), tanh, linear(2)], MSE, 3, tweak=padding_in_front)
embed("bag_sum_padding", [embedding_bag(7, 3, sum=True, padding_idx=0), tanh, linear(2)], MSE, 3,
      tweak=padding_in_front)
embed("bag_mean_only_padding", [embedding_bag(7, 3, padding_idx=0), linear(3), tanh, linear(2)], MSE, 3,
      tweak=only_padding)
embed("bag_sum_only_padding", [embedding_bag(7, 3, sum=True, padding_idx=0), linear(2)], BCE, 3, tweak=only_padding)
embed("text_convolution",
      [embedding(9, 3), transpose, conv1d(4, 3), relu, max_pool1d(6), flatten, linear(2)], CE, 3, positions=8,
      vocabulary=9)

# ---------------------------------------------------------------------------------------------------------------------
# Recurrent nets
# ---------------------------------------------------------------------------------------------------------------------

for index, cell in enumerate(["rnn", "relu", "gru", "lstm"]):
    for place, (name, hidden, tail, options) in enumerate([
        ("full", 3, [flatten, linear(2)], {}),
        ("one_bias_last", 3, [linear(2)], dict(biases=1, output="last")),
        ("no_bias_mean", 3, [linear(2)], dict(biases=0, output="mean")),
        ("two_layers_last", 3, [linear(2)], dict(layers=2, output="last")),
        ("bidirectional_full", 2, [mean_over_positions, linear(3)], dict(bidirectional=True)),
        ("bidirectional_last", 2, [linear(3)], dict(bidirectional=True, output="last")),
        ("two_layers_bidirectional_mean", 2, [linear(2)], dict(layers=2, bidirectional=True, output="mean")),
        ("two_layers_one_bias_full", 2, [linear(2), tanh, flatten], dict(layers=2, biases=1)),
        ("bidirectional_no_bias_last", 2, [linear(2)], dict(bidirectional=True, biases=0, output="last")),
    ]):
        add("recurrent", f"{cell}_{name}", (4, 3), [recurrent(cell, hidden, **options)] + tail, cycle(index + place),
            2 + (index + place) % 2)
    add("recurrent", f"{cell}_behind_linear", (5, 2), [linear(3), tanh, recurrent(cell, 4, output="last"), linear(3)],
        CE, 3)
    add("recurrent", f"{cell}_one_position", (1, 3), [linear(2), recurrent(cell, 3), select_last, linear(2)], MSE, 2)
    add("recurrent", f"{cell}_no_tail", (3, 2), [recurrent(cell, 1, output="last")], MSE, 3)
add("recurrent", "gru_two_layers_bidirectional_one_bias_last", (3, 2),
    [linear(2), recurrent("gru", 2, layers=2, bidirectional=True, biases=1, output="last"), linear(2)], MSE, 2)
add("recurrent", "lstm_two_layers_bidirectional_last", (3, 2),
    [linear(2), recurrent("lstm", 2, layers=2, bidirectional=True, output="last"), linear(2)], MSE, 2)
add("recurrent", "lstm_three_layers", (3, 2), [recurrent("lstm", 2, layers=3, output="mean"), linear(2)], MSE, 2)
add("recurrent", "lstm_on_gru", (4, 2), [recurrent("gru", 3), recurrent("lstm", 2), flatten], MSE, 2)
add("recurrent", "lstm_tied", (3, 2),
    [tied(1, recurrent("lstm", 2)), tanh, tied(1, recurrent("lstm", 2)), flatten, linear(2)], MSE, 2)
add("recurrent", "gru_frozen", (3, 2), [linear(2), frozen(recurrent("gru", 3, output="last")), linear(2)], MSE, 2)
add("recurrent", "lstm_residual", (3, 3), [linear(3), residual(recurrent("lstm", 3)), mean_over_positions, linear(2)],
    CE, 3)
add("recurrent", "lstm_characters", (6,), [embedding(5, 3), recurrent("lstm", 4, output="last"), linear(3)], CE, 3,
    vocabulary=5)
add("recurrent", "rnn_long", (24, 1), [recurrent("rnn", 3, output="last"), linear(2)], CE, 2)

# A state that is not zero: made of the sample's mean, or from some of its positions.
for cell in ["rnn", "relu", "gru", "lstm"]:
    states = 2 if cell == "lstm" else 1
    add("given_state", f"state_{cell}_last", (4, 2),
        [with_state([], [mean_over_positions, linear(3 * states), tanh], cell, 3, output="last"), linear(2)], MSE, 3)
    add("given_state", f"state_{cell}_two_layers_bidirectional", (4, 2),
        [with_state([linear(2)], [select_last, linear(8 * states)], cell, 2, layers=2, bidirectional=True),
         mean_over_positions, linear(2)], MSE, 2)
add("given_state", "state_lstm_bidirectional_one_bias", (3, 2),
    [with_state([linear(3), tanh], [flatten, linear(8)], "lstm", 2, bidirectional=True, biases=1, output="last"),
     linear(2)], CE, 3)
add("given_state", "state_gru_three_layers", (3, 2),
    [with_state([], [mean_over_positions, linear(6)], "gru", 2, layers=3, output="mean"), linear(2)], MSE, 2)
add("given_state", "state_gru_in_the_record", (5, 3),
    [with_state([take_positions(1, 4)], [take_positions(0, 1), flatten], "gru", 3, output="last"), linear(2)], MSE, 3)
add("given_state", "state_gru_encoder_decoder", (5, 2),
    [linear(3), tanh,
     with_state([take_positions(3, 2)], [take_positions(0, 3), recurrent("gru", 3, output="last")], "gru", 3), flatten,
     linear(2)], MSE, 2)
add("given_state", "state_lstm_frozen", (3, 2),
    [linear(2), with_state([], [frozen(mean_over_positions, linear(4))], "lstm", 2, output="last"), linear(2)], MSE, 2)

# ---------------------------------------------------------------------------------------------------------------------
# Attention
# ---------------------------------------------------------------------------------------------------------------------

for name, heads, options in [
    ("1_head", 1, {}),
    ("2_heads", 2, {}),
    ("4_heads", 4, {}),
    ("causal", 2, dict(causal=True)),
    ("no_bias", 2, dict(bias=False)),
    ("kv_bias", 2, dict(kv_bias=True)),
    ("kv_bias_causal", 1, dict(kv_bias=True, causal=True)),
    ("kv_bias_no_bias", 2, dict(kv_bias=True, bias=False)),
]:
    add("attention", f"self_{name}", (3, 4), [multihead_attention(heads, **options), flatten], MSE, 2)
add("attention", "self_behind_linear", (4, 3),
    [linear(4), tanh, multihead_attention(2), mean_over_positions, linear(3)], CE, 3)
add("attention", "self_causal_last", (4, 2), [linear(4), multihead_attention(2, causal=True), select_last, linear(2)],
    MSE, 3)
add("attention", "self_one_position", (1, 4), [linear(4), multihead_attention(2), flatten], MSE, 2)
add("attention", "self_kv_bias_behind_linear", (3, 2),
    [linear(4), multihead_attention(2, kv_bias=True), flatten, linear(2)], MSE, 2)
add("attention", "self_residual", (3, 4), [residual(layer_norm(), multihead_attention(2)), flatten, linear(2)], CE, 2)
add("attention", "self_twice", (3, 4), [multihead_attention(2), multihead_attention(1, causal=True), flatten], MSE, 2)
add("attention", "self_tied", (3, 4),
    [tied(1, multihead_attention(2)), tied(1, multihead_attention(2)), mean_over_positions], MSE, 2)
for name, queries, memory, options in [
    ("plain", [take_positions(0, 2)], [take_positions(2, 3)], {}),
    ("no_bias", [take_positions(0, 2)], [take_positions(2, 3)], dict(bias=False)),
    ("kv_bias", [take_positions(0, 2)], [take_positions(2, 3)], dict(kv_bias=True)),
    ("same_memory", [take_positions(0, 2)], [take_positions(0, 5)], {}),
    ("branches", [take_positions(0, 3), linear(4)], [take_positions(3, 2), linear(4), tanh], {}),
    ("separate_widths", [take_positions(0, 2)], [take_positions(2, 3), linear(6)], {}),
    ("separate_widths_no_bias", [take_positions(0, 2), linear(2)], [take_positions(2, 3)], dict(bias=False)),
]:
    add("attention", f"cross_{name}", (5, 4), [cross_attention(2, queries, memory, **options), flatten], MSE, 2)
add("attention", "cross_behind_linear", (5, 3),
    [linear(4), tanh, cross_attention(2, [take_positions(0, 2)], [take_positions(2, 3)]), flatten, linear(2)], MSE, 2)
for pre_norm in [False, True]:
    for gelu_activation in [False, True]:
        add("attention", f"encoder_{'pre' if pre_norm else 'post'}_{'gelu' if gelu_activation else 'relu'}", (3, 4),
            [transformer_encoder_layer(2, 5, pre_norm, gelu_activation), flatten, linear(2)], MSE, 2)
add("attention", "encoder_dropout_not_drawn", (3, 4),
    [transformer_encoder_layer(2, 5, dropout_rate=(1, 4)), flatten, linear(2)], MSE, 2)
add("attention", "self_dropout_not_drawn", (3, 4), [multihead_attention(2, attention_dropout=(1, 2)), flatten], MSE, 2)
add("attention", "encoder_twice", (3, 2),
    [linear(4), transformer_encoder_layer(2, 3), transformer_encoder_layer(1, 3, pre_norm=True), mean_over_positions,
     linear(2)], CE, 3)
add("attention", "sinusoidal", (5, 6), [sinusoidal_positions, linear(2), tanh, flatten], MSE, 2)
add("attention", "sinusoidal_odd_features", (4, 5), [linear(5), sinusoidal_positions, tanh, flatten, linear(2)], MSE, 2)
add("attention", "learned_positions_of_input", (3, 4), [learned_positions, tanh, flatten], MSE, 2)
add("attention", "learned_positions_behind", (3, 2), [linear(4), learned_positions, tanh, linear(2), flatten], MSE, 3)
add("attention", "sequence_bias_of_input", (3, 2), [sequence_bias, linear(3), tanh, flatten], MSE, 2)
add("attention", "sequence_bias_behind", (3, 2),
    [linear(4), sequence_bias, multihead_attention(2), mean_over_positions, linear(2)], MSE, 2)
add("attention", "text_transformer", (5,),
    [embedding(7, 4), sinusoidal_positions, transformer_encoder_layer(2, 6), mean_over_positions, linear(2)], CE, 3,
    vocabulary=7)
add("attention", "gpt_block", (5,),
    [embedding(6, 4), learned_positions, residual(layer_norm(), multihead_attention(2, causal=True)),
     residual(layer_norm(), linear(8), gelu, linear(4)), layer_norm(), select_last, linear(6, bias=False)], CE, 3,
    vocabulary=6)
add("attention", "llama_like_block", (4,),
    [embedding(6, 4), residual(rms_norm(), multihead_attention(2, causal=True, bias=False)),
     residual(rms_norm(), linear(6, bias=False), gelu, linear(4, bias=False)), rms_norm(), select_last, linear(3)],
    CE, 2, vocabulary=6)
add("attention", "adapted_block", (3, 4),
    [frozen(linear(4)), residual(frozen(layer_norm()), frozen(multihead_attention(2)), lora(2, 4, 4)), flatten,
     linear(2)], MSE, 2)

# ---------------------------------------------------------------------------------------------------------------------
# Samples of varying length. Each is computed by itself, cut to its length.
# ---------------------------------------------------------------------------------------------------------------------


def vary(name, shape, layers, loss, lengths, **options):
    add("variable", f"varying_{name}", shape, layers, loss, len(lengths), lengths=lengths, **options)


for index, cell in enumerate(["rnn", "relu", "gru", "lstm"]):
    vary(f"{cell}_last", (5, 3), [recurrent(cell, 3, output="last"), linear(2)], cycle(index), [5, 1, 3])
    vary(f"{cell}_mean", (4, 2), [linear(3), recurrent(cell, 3, output="mean"), linear(2)], cycle(index, 1), [2, 4, 1])
    vary(f"{cell}_bidirectional_last", (4, 2),
         [linear(3), tanh, recurrent(cell, 2, bidirectional=True, output="last"), linear(2)], cycle(index, 2),
         [1, 4, 2])
    vary(f"{cell}_bidirectional_two_layers_mean", (4, 2),
         [recurrent(cell, 2, layers=2, bidirectional=True, output="mean"), linear(2)], cycle(index, 3), [3, 1, 4])
    vary(f"{cell}_full_mean", (4, 2), [linear(2), recurrent(cell, 3), linear(2), tanh, mean_over_positions],
         cycle(index), [2, 4, 1])
vary("lstm_all_full", (3, 2), [recurrent("lstm", 3, output="last"), linear(2)], MSE, [3, 3])
vary("lstm_all_one", (3, 2), [linear(2), recurrent("lstm", 3, output="mean"), linear(2)], MSE, [1, 1])
vary("lstm_two_layers_one_bias_last", (4, 2),
     [linear(3), recurrent("lstm", 2, layers=2, biases=1, output="last"), linear(2)], MSE, [4, 2, 3])
vary("gru_full_select_last", (4, 2), [linear(2), recurrent("gru", 3), select_last, linear(2)], CE, [1, 3, 4])
vary("gru_bidirectional_select_last", (4, 2),
     [recurrent("gru", 2, bidirectional=True), select_last, linear(2)], MSE, [2, 4, 1])
vary("state_lstm_last", (4, 2),
     [with_state([linear(2)], [mean_over_positions, linear(4)], "lstm", 2, output="last"), linear(2)], MSE, [2, 4, 1])
vary("linear_mean", (4, 3), [linear(3), tanh, mean_over_positions, linear(2)], CE, [4, 1, 2, 3])
vary("linear_last", (4, 3), [linear(3), tanh, select_last, linear(2)], MSE, [4, 1, 2])
vary("layer_norm_mean", (4, 3), [linear(4), layer_norm(), gelu, mean_over_positions, linear(2)], MSE, [1, 4, 2])
vary("layer_norm_of_input", (3, 4), [layer_norm(), linear(2), tanh, mean_over_positions], MSE, [3, 1])
vary("attention_mean", (4, 4), [multihead_attention(2), mean_over_positions, linear(2)], MSE, [4, 1, 3])
vary("attention_behind_linear", (4, 2), [linear(4), tanh, multihead_attention(2), tanh, mean_over_positions, linear(2)],
     CE, [2, 4, 1])
vary("attention_causal_last", (4, 2), [linear(4), multihead_attention(2, causal=True), select_last, linear(2)], MSE,
     [3, 1, 4])
vary("attention_kv_bias_mean", (4, 2), [linear(4), multihead_attention(2, kv_bias=True), mean_over_positions], MSE,
     [2, 4, 1])
vary("encoder_post_mean", (4, 4), [transformer_encoder_layer(2, 5), mean_over_positions, linear(2)], MSE, [4, 2, 1])
vary("encoder_pre_gelu_mean", (4, 2),
     [linear(4), transformer_encoder_layer(2, 5, pre_norm=True, gelu_activation=True), mean_over_positions, linear(2)],
     CE, [1, 4, 3])
vary("residual_mean", (4, 3), [linear(3), residual(linear(4), tanh, linear(3)), mean_over_positions, linear(2)], MSE,
     [4, 1, 2])
vary("sinusoidal_mean", (4, 4), [linear(4), sinusoidal_positions, tanh, mean_over_positions], MSE, [1, 4, 3])
vary("learned_positions_mean", (4, 3), [linear(3), learned_positions, tanh, mean_over_positions], MSE, [2, 4, 1])
vary("learned_positions_of_input", (4, 2), [learned_positions, linear(3), tanh, mean_over_positions], MSE, [3, 1])
vary("transposed_and_back", (4, 3), [linear(3), transpose, tanh, transpose, linear(2), mean_over_positions], MSE,
     [2, 4, 1])
vary("branches_mean", (4, 3), [parallel([linear(2), tanh], [linear(3)]), gelu, mean_over_positions, linear(2)], MSE,
     [1, 4, 3])
vary("frozen_lstm_last", (4, 2), [linear(2), frozen(recurrent("lstm", 3, output="last")), linear(2)], CE, [4, 1, 2])
vary("tied_linear", (4, 2), [tied(1, linear(2)), tanh, tied(1, linear(2)), mean_over_positions], MSE, [2, 4, 1])
vary("embedding_mean", (5,), [embedding(6, 3), mean_over_positions, linear(2)], CE, [5, 1, 3], vocabulary=6)
vary("embedding_linear_mean", (5,), [embedding(6, 3), linear(3), tanh, mean_over_positions, linear(2)], MSE, [2, 5, 1],
     vocabulary=6)
vary("embedding_last", (5,), [embedding(6, 3), select_last, linear(2)], MSE, [5, 1, 3], vocabulary=6)
vary("embedding_bag_mean", (5,), [embedding_bag(6, 3), linear(2)], CE, [5, 1, 3], vocabulary=6)
vary("embedding_bag_sum", (5,), [embedding_bag(6, 3, sum=True), tanh, linear(2)], MSE, [2, 5, 1], vocabulary=6)
vary("embedding_bag_mean_padding", (5,), [embedding_bag(6, 3, padding_idx=0), tanh, linear(2)], MSE, [3, 5, 2],
     vocabulary=6, tweak=padding_in_front)
vary("embedding_padding_mean", (5,), [embedding(6, 3, padding_idx=0), linear(2), tanh, mean_over_positions, linear(2)],
     MSE, [3, 5, 2], vocabulary=6, tweak=padding_in_front)
vary("embedding_lstm_last", (6,), [embedding(5, 3), recurrent("lstm", 3, output="last"), linear(3)], CE, [6, 2, 4, 1],
     vocabulary=5)
vary("embedding_bidirectional_gru_mean", (5,),
     [embedding(5, 2), recurrent("gru", 2, bidirectional=True, output="mean"), linear(3)], CE, [1, 5, 3], vocabulary=5)
vary("embedding_rnn_last", (5,), [embedding(5, 2), recurrent("rnn", 3, output="last"), linear(2)], MSE, [4, 1, 5],
     vocabulary=5)
vary("text_transformer", (5,),
     [embedding(6, 4), sinusoidal_positions, transformer_encoder_layer(2, 5), mean_over_positions, linear(2)], CE,
     [3, 5, 1], vocabulary=6)

# ---------------------------------------------------------------------------------------------------------------------
# Language models: a loss at every position, and a table that is looked up and multiplied with
# ---------------------------------------------------------------------------------------------------------------------


def some_ignored(inputs, targets, parameters):
    targets[0, 1] = targets[1, 0] = targets[1, 3] = -100


def none_counts(inputs, targets, parameters):
    targets[0] = -100


def language(name, layers, loss, batch, positions=4, vocabulary=5, **options):
    add("language", f"language_{name}", (positions,), layers, loss, batch, vocabulary=vocabulary, **options)


gpt_block = [residual(layer_norm(), multihead_attention(2, causal=True)),
             residual(layer_norm(), linear(8), gelu_tanh, linear(4))]

add("language", "language_of_numbers", (4, 3), [linear(4), tanh, linear(5)], tokens(), 3)
add("language", "language_gelu_tanh", (4, 3), [linear(4), gelu_tanh, linear(5)], tokens(), 3, range=6.0)
language("mean", [embedding(5, 3), linear(4), tanh, linear(5)], tokens(), 3)
language("sum", [embedding(5, 3), tanh, linear(5)], tokens(sum=True), 3)
language("some_ignored", [embedding(5, 3), tanh, linear(5)], tokens(), 3, tweak=some_ignored)
language("some_ignored_sum", [embedding(5, 3), tanh, linear(5)], tokens(sum=True), 3, tweak=some_ignored)
language("none_counts", [embedding(5, 3), tanh, linear(5)], tokens(), 3, tweak=none_counts)
language("ignored_class", [embedding(5, 3), tanh, linear(5)], tokens(ignore_index=0), 4)
language("one_position", [embedding(5, 3), tanh, linear(5)], tokens(), 3, positions=1)
language("tied", [tied(0, embedding(5, 3)), tanh, unembedding(0, 5)], tokens(), 3)
language("tied_alone", [tied(0, embedding(5, 3)), unembedding(0, 5)], tokens(), 3)
language("tied_repeated", [tied(0, embedding(5, 3)), linear(3), tanh, unembedding(0, 5)], tokens(), 3,
         tweak=all_the_same)
language("tied_many_ids", [tied(0, embedding(23, 3)), linear(3), tanh, unembedding(0, 23)], tokens(sum=True), 3,
         positions=7, vocabulary=23)
language("tied_ignored", [tied(0, embedding(5, 3)), tanh, unembedding(0, 5)], tokens(ignore_index=2), 4)
language("tied_twice", [tied(0, embedding(5, 3)), tanh, unembedding(0, 5), tanh, linear(3), unembedding(0, 5)], tokens(),
         3)
language("tied_mean", [tied(0, embedding(5, 3)), tanh, unembedding(0, 5), mean_over_positions], CE, 3)
language("tied_frozen", [frozen(tied(0, embedding(5, 3))), linear(3), tanh, frozen(unembedding(0, 5))], tokens(), 3)
language("gpt2", [tied(0, embedding(5, 4)), learned_positions, repeat(2, *gpt_block), layer_norm(), unembedding(0, 5)],
         tokens(), 3)

# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_sequences.py - layers on (positions, features): embeddings, recurrent nets, attention, positions
"""As golden_layers.py. Modules that look at several positions know three ways:

  * PyTorch's own module on whole samples (the truth; a shorter sample is cut before);
  * mode.explicit: written out here, for vmap;
  * mode.lengths: PyTorch's own means for padded samples (packing, key padding masks), or with mode.explicit, masks.
"""

import math

from golden_layers import (NS, F, Layer, build, cpp_join, cpp_list, cpp_options, cpp_ratio, function, mode, nn, shared,
                           torch)


def counted(x):
    """[batch, positions, 1]: 1 where a position belongs to its sample, else 0."""
    return (torch.arange(x.shape[1])[None, :] < mode.lengths[:, None]).unsqueeze(-1).to(torch.float64)


def mean_of(x):
    return x.mean(1) if mode.lengths is None else (x * counted(x)).sum(1) / mode.lengths[:, None]


def last_of(x):
    if mode.lengths is None:
        return x[:, -1]
    return (x * (torch.arange(x.shape[1])[None, :] == mode.lengths[:, None] - 1).unsqueeze(-1)).sum(1)


mean_over_positions = function("mean_over_positions", mean_of)
select_last = function("select_last", last_of)


def take_positions(first, count):
    return function(f"take_positions<{first}, {count}>", lambda x: x[:, first:first + count])


# ---------------------------------------------------------------------------------------------------------------------
# Embeddings of a vocabulary: the network's integer input
# ---------------------------------------------------------------------------------------------------------------------


def embedding(vocabulary, size, padding_idx=None):
    def make(shape):
        class Embedding(nn.Embedding):
            def forward(self, ids):
                return rows_of(self, ids) if mode.explicit else super().forward(ids)

        return Embedding(vocabulary, size, padding_idx=padding_idx)

    return Layer(cpp_join("embedding", [str(size)] + cpp_options(padding_idx=padding_idx)), make)


def rows_of(module, ids):
    """The rows of the table; padding_idx receives no gradient."""
    rows = (ids.unsqueeze(-1) == torch.arange(module.weight.shape[0])).to(module.weight.dtype) @ module.weight
    return rows if module.padding_idx is None else torch.where((ids == module.padding_idx).unsqueeze(-1),
                                                               rows.detach(), rows)


def unembedding(key, vocabulary):
    """The table of the embedding that is tied under this key, as a linear layer without bias."""
    def make(shape):
        class Unembedding(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = shared[key]

            def forward(self, x):
                return F.linear(x, self.table[0].weight)

        return Unembedding()

    return Layer(f"tied<{key}, {NS}{cpp_join('linear', [str(vocabulary)] + cpp_options(no_bias=True))}>", make)


def embedding_bag(vocabulary, size, sum=False, padding_idx=None):
    def make(shape):
        class EmbeddingBag(nn.EmbeddingBag):
            def forward(self, ids):
                if not mode.explicit and mode.lengths is None:
                    return super().forward(ids)
                rows = rows_of(self, ids)
                kept = torch.ones_like(rows[..., :1]) if mode.lengths is None else counted(rows)
                if self.padding_idx is not None:
                    kept = kept * (ids != self.padding_idx).unsqueeze(-1)
                total = (rows * kept).sum(1)
                return total if sum else total / kept.sum(1).clamp(min=1)

        return EmbeddingBag(vocabulary, size, mode="sum" if sum else "mean", padding_idx=padding_idx)

    return Layer(cpp_join("embedding_bag", [str(size)] + cpp_options(bag_sum=sum, padding_idx=padding_idx)), make)


# ---------------------------------------------------------------------------------------------------------------------
# Recurrent nets. output: "full" (every position), "last" (h_n: forward's last position, backward's first), "mean".
# ---------------------------------------------------------------------------------------------------------------------


def step_rnn(activation):
    def step(gates_x, state, w, b):
        h = activation(gates_x + F.linear(state[0], w, b))
        return h, (h,)

    return step


def step_gru(gates_x, state, w, b):
    (rx, zx, nx), (rh, zh, nh) = gates_x.chunk(3, -1), F.linear(state[0], w, b).chunk(3, -1)
    r, z = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
    h = (1 - z) * torch.tanh(nx + r * nh) + z * state[0]
    return h, (h,)


def step_lstm(gates_x, state, w, b):
    i, f, g, o = (gates_x + F.linear(state[0], w, b)).chunk(4, -1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c)


def recurrent(cell, hidden, layers=1, bidirectional=False, biases=2, output="full"):
    """cell: rnn (tanh), relu (an rnn), gru or lstm. biases: 2 as in PyTorch; 1: bias_hh is zero and no parameter; 0."""
    name = "rnn" if cell == "relu" else cell
    options = cpp_options(relu_cell=cell == "relu", layers=None if layers == 1 else layers,
                          bidirectional=bidirectional, one_bias=biases == 1, no_bias=biases == 0,
                          last_output=output == "last", mean_output=output == "mean")

    states, directions = 2 if cell == "lstm" else 1, 2 if bidirectional else 1

    def make(shape):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                net = {"rnn": nn.RNN, "relu": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell](
                    shape[-1], hidden, layers, bias=biases > 0, batch_first=True, bidirectional=bidirectional,
                    dtype=torch.float64, **(dict(nonlinearity="relu") if cell == "relu" else {}))
                for key, parameter in net.named_parameters():
                    if biases == 1 and key.startswith("bias_hh"):
                        parameter.data.zero_()
                    else:
                        self.register_parameter(key, parameter)
                self.net = [net]    # in a list: its parameters are already ours
                self.relu = nn.ReLU()

            def forward(self, x, state=None):
                """state: [batch, everything] as C++ has it."""
                if state is None:
                    state = torch.zeros_like(x[:, 0, :1]).repeat(1, states * directions * layers * hidden)
                state = state.reshape(-1, states, layers * directions, hidden).permute(1, 2, 0, 3)
                return self.written_out(x, state) if mode.explicit else self.native(x, state.contiguous())

            def native(self, x, state):
                net, state = self.net[0], tuple(state) if cell == "lstm" else state[0]
                if mode.lengths is None:
                    y, final = net(x, state)
                else:
                    packed = nn.utils.rnn.pack_padded_sequence(x, mode.lengths, True, enforce_sorted=False)
                    y, final = net(packed, state)
                    y = nn.utils.rnn.pad_packed_sequence(y, True, total_length=x.shape[1])[0]
                h = final[0] if cell == "lstm" else final
                return self.chosen(y, torch.cat(list(h[-directions:]), -1))

            def chosen(self, y, last):
                return {"full": lambda: y, "last": lambda: last, "mean": lambda: mean_of(y)}[output]()

            def written_out(self, x, initial):
                step = {"rnn": step_rnn(torch.tanh), "relu": step_rnn(self.relu), "gru": step_gru,
                        "lstm": step_lstm}[cell]
                for layer in range(layers):
                    sides = []
                    for suffix in ["", "_reverse"][:1 + bidirectional]:
                        w_ih, w_hh, b_ih, b_hh = (getattr(self, f"{kind}_l{layer}{suffix}", None) for kind in
                                                  ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
                        gates = F.linear(x, w_ih, b_ih)
                        state = tuple(initial[:, layer * directions + len(sides)])
                        outputs = [None] * x.shape[1]
                        for t in reversed(range(x.shape[1])) if suffix else range(x.shape[1]):
                            y, moved = step(gates[:, t], state, w_hh, b_hh)
                            if mode.lengths is not None:    # beyond the end nothing moves, and nothing is put out
                                inside = (t < mode.lengths)[:, None]
                                y = torch.where(inside, y, torch.zeros_like(y))
                                moved = [torch.where(inside, new, old) for new, old in zip(moved, state)]
                            outputs[t], state = y, tuple(moved)
                        sides.append((torch.stack(outputs, 1), state[0]))
                    x, last = (torch.cat(part, -1) for part in zip(*sides))
                return self.chosen(x, last)

        return Recurrent()

    return Layer(cpp_join(name, [str(hidden)] + options), make)


def with_state(sequence, state, *cell_and_hidden, **options):
    """A recurrent layer that starts from a state made of the input: h of every layer and direction, then c."""
    layer = recurrent(*cell_and_hidden, **options)

    def make(shape):
        class WithState(nn.Module):
            def __init__(self):
                super().__init__()
                self.sequence, out = build(sequence, shape)
                self.state = build(state, shape)[0]
                self.recurrent = layer.make(out)

            def forward(self, x):
                return self.recurrent(self.sequence(x), self.state(x))

        return WithState()

    return Layer(f"with_state<{layer.cpp}, {NS}sequence<{cpp_list(sequence)}>, {NS}state<{cpp_list(state)}>>", make)


# ---------------------------------------------------------------------------------------------------------------------
# Attention
# ---------------------------------------------------------------------------------------------------------------------


def causal_mask(positions):
    return torch.triu(torch.ones(positions, positions, dtype=torch.bool), 1)


def padding_mask(x):
    return None if mode.lengths is None else counted(x)[..., 0] == 0


def cpp_rate(name, rate):
    return [f"{NS}{name}<{rate[0] / rate[1]}>"] if rate else []


def multihead_attention(heads, causal=False, bias=True, kv_bias=False, attention_dropout=None):
    """As in evaluation: nothing is dropped."""
    options = cpp_options(causal=causal, no_bias=not bias, kv_bias=kv_bias)
    options += cpp_rate("attention_dropout", attention_dropout)

    def make(shape):
        class SelfAttention(nn.MultiheadAttention):
            def forward(self, x):
                return super().forward(x, x, x, need_weights=False, key_padding_mask=padding_mask(x),
                                       attn_mask=causal_mask(x.shape[1]) if causal else None)[0]

        return SelfAttention(shape[1], heads, bias=bias, add_bias_kv=kv_bias, batch_first=True)

    return Layer(cpp_join("multihead_attention", [str(heads)] + options), make)


def cross_attention(heads, queries, memory, bias=True, kv_bias=False):
    """Parameters: those of the queries' layers, of the memory's layers, then PyTorch's own."""
    branches = [f"{NS}queries<{cpp_list(queries)}>", f"{NS}memory<{cpp_list(memory)}>"]
    options = cpp_options(no_bias=not bias, kv_bias=kv_bias)

    def make(shape):
        class CrossAttention(nn.Module):
            def __init__(self):
                super().__init__()
                self.queries, (_, width) = build(queries, shape)
                self.memory, (_, memory_width) = build(memory, shape)
                self.attention = nn.MultiheadAttention(width, heads, bias=bias, add_bias_kv=kv_bias, kdim=memory_width,
                                                       vdim=memory_width, batch_first=True)

            def forward(self, x):
                m = self.memory(x)
                return self.attention(self.queries(x), m, m, need_weights=False)[0]

        return CrossAttention()

    return Layer(cpp_join("cross_attention", [str(heads)] + branches + options), make)


def transformer_encoder_layer(heads, width, pre_norm=False, gelu_activation=False, dropout_rate=None):
    """PyTorch's, as in evaluation: nothing is dropped."""
    options = cpp_options(pre_norm=pre_norm, gelu_activation=gelu_activation)
    options += cpp_rate("dropout_rate", dropout_rate)

    def make(shape):
        class Encoder(nn.TransformerEncoderLayer):
            def forward(self, x):
                return super().forward(x, src_key_padding_mask=padding_mask(x))

        return Encoder(shape[1], heads, width, dropout=0.0, activation=nn.GELU() if gelu_activation else nn.ReLU(),
                       batch_first=True, norm_first=pre_norm)

    return Layer(cpp_join("transformer_encoder_layer", [str(heads), str(width)] + options), make)


# ---------------------------------------------------------------------------------------------------------------------
# Positions
# ---------------------------------------------------------------------------------------------------------------------


def sinusoids(x):
    """Vaswani et al. 2017, section 3.5: sine in even features, cosine in odd ones."""
    _, positions, features = x.shape
    angles = [[p / 10000 ** (2 * (f // 2) / features) for f in range(features)] for p in range(positions)]
    return x + torch.tensor([[math.cos(a) if f % 2 else math.sin(a) for f, a in enumerate(row)] for row in angles],
                            dtype=torch.float64)


sinusoidal_positions = function("sinusoidal_positions", sinusoids)


def make_learned_positions(shape):
    class LearnedPositions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(*shape))

        def forward(self, x):
            return x + self.table[:x.shape[1]]

    return LearnedPositions()


learned_positions = Layer("learned_positions", make_learned_positions)


def make_sequence_bias(shape):
    class SequenceBias(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(shape[1]))

        def forward(self, x):
            return torch.cat([x, self.bias.expand(x.shape[0], 1, -1)], 1)

    return SequenceBias()


sequence_bias = Layer("sequence_bias", make_sequence_bias)

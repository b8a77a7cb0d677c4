//! One block of a transformer: attention and a feed-forward part, each around a residual sum.
//!
//! Families differ in what is normalised when, which biases there are, how wide keys are and whether the feed-forward
//! part is gated. A [`TransformerBlock`] says so; [`TransformerBlock::add`] writes its operators as the usual PyTorch programs run them.

use super::super::builder::{Builder, Owned, Rows};
use super::super::graph::{Function, Norm, OpKind, TensorId, WeightSplit};
use super::latent::Latent;

/// Configuration of the blocks of one transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformerBlock {
    pub hidden: u64,
    pub heads: u64,
    /// Heads of keys and values: `heads`, fewer with grouped queries, 1 with one for all.
    pub key_heads: u64,
    /// Width of one head, mostly `hidden / heads`.
    pub head_width: u64,
    /// Width of one head's values, where it is another.
    pub value_width: Option<u64>,
    pub order: Order,
    pub norm: Norm,
    pub norm_bias: bool,
    /// Normalisations are written out, an operator for each sign of their formula, as in the first DeBERTa.
    pub norm_steps: bool,
    /// Queries and keys are normalised too, each head by itself.
    pub head_norm: bool,
    /// Queries, keys and values come from one product.
    pub joined: bool,
    /// Biases of queries and values, and of keys unless `key_bias` says no.
    pub query_bias: bool,
    pub key_bias: bool,
    /// Bias of the product after attention.
    pub output_bias: bool,
    /// Keys and values, and maybe queries, come through a narrow middle.
    pub latent: Option<Latent>,
    /// Rotary position embedding of queries and keys.
    pub rotary: bool,
    /// Positions are added to the inputs of queries and keys, in each block, as in DETR.
    pub placed: bool,
    pub causal: bool,
    /// Sliding window: maximum number of positions that a query attends to.
    pub window: Option<u64>,
    pub attention_dropout: bool,
    /// Dropout before each residual sum.
    pub dropout: bool,
    pub feed: Feed,
}

/// Where the normalisations stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Before attention and before the feed-forward part.
    Before,
    /// After each residual sum, as in the first transformers.
    After,
    /// Before and after each part, within the residual path.
    Around,
    /// After each part, within the residual path.
    Within,
    /// Attention and feed-forward part side by side, from one normalisation or one each.
    Parallel { norms: u8 },
}

/// The feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feed {
    pub width: u64,
    pub function: Function,
    /// A second product, multiplied by the first's activation.
    pub gated: bool,
    pub bias: bool,
    /// Dropout between the two products, as in T5.
    pub dropout: bool,
    /// None: every token passes through one and the same.
    pub experts: Option<Experts>,
}

/// Feed-forward parts to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    pub count: u64,
    /// How many each token passes through.
    pub active: u64,
    /// Width of a further part that every token passes through; 0 without.
    pub shared: u64,
    /// The output of that part is scaled by one more value per token.
    pub weighed: bool,
}

impl Feed {
    /// As in GPT-2 and ViT: one product, GELU, a second product, both with biases.
    pub fn plain(width: u64) -> Feed {
        Feed { width, function: Function::Gelu, gated: false, bias: true, dropout: false, experts: None }
    }
}

impl TransformerBlock {
    /// As in ViT: normalised before each part, with all biases, a feed-forward part four times as wide, no dropout, and
    /// every position seen. Families say how they differ from it.
    pub fn pre_norm(hidden: u64, heads: u64) -> TransformerBlock {
        TransformerBlock {
            hidden,
            heads,
            key_heads: heads,
            head_width: hidden / heads.max(1),
            value_width: None,
            order: Order::Before,
            norm: Norm::Layer,
            norm_bias: true,
            norm_steps: false,
            head_norm: false,
            joined: false,
            query_bias: true,
            key_bias: true,
            output_bias: true,
            latent: None,
            rotary: false,
            placed: false,
            causal: false,
            window: None,
            attention_dropout: false,
            dropout: false,
            feed: Feed::plain(hidden.saturating_mul(4)),
        }
    }

    /// Adds one block over `from` and returns what leaves it.
    pub fn add(&self, builder: &mut Builder, from: Rows) -> Rows {
        let block = builder.begin_block();
        let name = |part: &str| format!("block{block}.{part}");
        match self.order {
            Order::Before => {
                let normal = self.normal(builder, name("norm1"), from);
                let attended = self.attention(builder, block, normal);
                let between = self.join(builder, name("sum1"), attended, from);
                let normal = self.normal(builder, name("norm2"), between);
                let fed = self.feed(builder, block, normal);
                self.join(builder, name("sum2"), fed, between)
            }
            Order::After => {
                let attended = self.attention(builder, block, from);
                let sum = self.join(builder, name("sum1"), attended, from);
                let between = self.normal(builder, name("norm1"), sum);
                let fed = self.feed(builder, block, between);
                let sum = self.join(builder, name("sum2"), fed, between);
                self.normal(builder, name("norm2"), sum)
            }
            Order::Around => {
                let normal = self.normal(builder, name("norm1"), from);
                let attended = self.attention(builder, block, normal);
                let normal = self.normal(builder, name("norm2"), attended);
                let between = self.join(builder, name("sum1"), normal, from);
                let normal = self.normal(builder, name("norm3"), between);
                let fed = self.feed(builder, block, normal);
                let normal = self.normal(builder, name("norm4"), fed);
                self.join(builder, name("sum2"), normal, between)
            }
            Order::Within => {
                let attended = self.attention(builder, block, from);
                let normal = self.normal(builder, name("norm1"), attended);
                let between = self.join(builder, name("sum1"), normal, from);
                let fed = self.feed(builder, block, between);
                let normal = self.normal(builder, name("norm2"), fed);
                self.join(builder, name("sum2"), normal, between)
            }
            Order::Parallel { norms } => {
                let first = self.normal(builder, name("norm1"), from);
                let second = match norms {
                    0 | 1 => first,
                    2.. => self.normal(builder, name("norm2"), from),
                };
                let attended = self.attention(builder, block, first);
                let fed = self.feed(builder, block, second);
                let sum = self.join(builder, name("sum1"), attended, from);
                self.join(builder, name("sum2"), fed, sum)
            }
        }
    }

    /// Adds one block of a decoder that also attends to what an encoder left in `encoded`.
    pub fn add_across(&self, builder: &mut Builder, from: Rows, encoded: Rows) -> Rows {
        let block = builder.begin_block();
        let name = |part: &str| format!("block{block}.{part}");
        let before = matches!(self.order, Order::Before);
        let mut at = from;
        for (index, part) in ["attention", "across", "feed"].iter().enumerate() {
            let norm = format!("norm{}", index + 1);
            let entering = if before { self.normal(builder, name(&norm), at) } else { at };
            let done = match *part {
                "attention" => self.attend(builder, block, part, entering, entering),
                "across" => self.attend(builder, block, part, entering, encoded),
                _ => self.feed(builder, block, entering),
            };
            at = self.join(builder, name(&format!("sum{}", index + 1)), done, at);
            if !before {
                at = self.normal(builder, name(&norm), at);
            }
        }
        at
    }

    /// Weights of attention to an encoder, and of the normalisation before or after it, which are there without one too.
    pub fn across_weights(&self) -> u64 {
        let (wide, narrow) = (self.heads * self.head_width, self.key_heads * self.head_width);
        let products = self.hidden * (2 * wide + 2 * narrow);
        let query_bias = if self.query_bias { wide + narrow } else { 0 };
        let key_bias = if self.query_bias && self.key_bias { narrow } else { 0 };
        let output_bias = if self.output_bias { self.hidden } else { 0 };
        products + query_bias + key_bias + output_bias + self.hidden * if self.norm_bias { 2 } else { 1 }
    }

    fn normal(&self, builder: &mut Builder, name: String, from: Rows) -> Rows {
        match self.norm_steps {
            true => builder.norm_steps(&name, from),
            false => builder.norm(name, from, self.norm, self.norm_bias),
        }
    }

    fn join(&self, builder: &mut Builder, name: String, part: Rows, from: Rows) -> Rows {
        let part = match self.dropout {
            true => builder.dropout(format!("{name}.dropout"), part),
            false => part,
        };
        builder.combine(name, part, from, false)
    }

    fn attention(&self, builder: &mut Builder, block: u32, from: Rows) -> Rows {
        self.attend(builder, block, "attention", from, from)
    }

    /// Attention of `from` to `other`, which is `from` itself but between an encoder and a decoder.
    fn attend(&self, builder: &mut Builder, block: u32, part: &str, from: Rows, other: Rows) -> Rows {
        self.look(builder, &format!("block{block}.{part}"), from, other)
    }

    /// The same, outside the repeated blocks too; `name` is that of the part.
    pub fn look(&self, builder: &mut Builder, name: &str, from: Rows, other: Rows) -> Rows {
        let itself = from == other;
        if let Some(latent) = self.latent.filter(|_| itself) {
            return latent.add(self, builder, name, from);
        }
        let name = |inner: &str| format!("{name}.{inner}");
        let value_width = self.value_width.unwrap_or(self.head_width);
        let wide = self.heads * value_width;
        let queries_keys_values = match self.joined && itself {
            true => self.joined_projection(builder, &name, from),
            false => self.projections(builder, &name, from, other),
        };
        let kind = OpKind::Attention {
            heads: self.heads,
            key_heads: self.key_heads,
            width: self.head_width,
            value_width,
            queries: from.rows,
            keys: self.window.map_or(other.rows, |window| window.min(other.rows)),
            causal: self.causal && itself,
            dropout: self.attention_dropout,
        };
        let tensor = builder.add(name("scores"), kind, &queries_keys_values, from.rows * wide, Owned::NOTHING);
        let attended = Rows { tensor, rows: from.rows, width: wide };
        builder.linear(name("output"), attended, self.hidden, self.output_bias, WeightSplit::Rows)
    }

    /// Values of a token of all heads.
    fn values(&self) -> u64 {
        self.key_heads * self.value_width.unwrap_or(self.head_width)
    }

    /// Queries, keys and values from one product.
    fn joined_projection(&self, builder: &mut Builder, name: &dyn Fn(&str) -> String, from: Rows) -> Vec<TensorId> {
        let (wide, narrow) = (self.heads * self.head_width, self.key_heads * self.head_width);
        let all = wide + narrow + self.values();
        let joined = builder.linear(name("query_key_value"), from, all, self.query_bias, WeightSplit::Columns);
        match self.rotary {
            // Queries and keys are turned, values stay in what was joined.
            true => {
                let turned = Rows { width: wide + narrow, ..joined };
                vec![builder.rotate(name("rotation"), turned).tensor, joined.tensor]
            }
            false => vec![joined.tensor],
        }
    }

    /// Queries of `from`, keys and values of `other`, each from a product of its own.
    fn projections(
        &self,
        builder: &mut Builder,
        name: &dyn Fn(&str) -> String,
        from: Rows,
        other: Rows,
    ) -> Vec<TensorId> {
        let itself = from == other;
        let (wide, narrow) = (self.heads * self.head_width, self.key_heads * self.head_width);
        let (mut asks, mut answers) = (from, other);
        if self.placed {
            asks = builder.rotate(name("query_place"), from);
            answers = if itself { asks } else { builder.rotate(name("key_place"), other) };
        }
        let mut projected = [("query", asks, wide), ("key", answers, narrow), ("value", other, self.values())].map(
            |(part, from, width)| {
                let bias = self.query_bias && (part != "key" || self.key_bias);
                builder.linear(name(part), from, width, bias, WeightSplit::Columns)
            },
        );
        for (part, rows) in ["query", "key"].iter().zip(projected.iter_mut()) {
            if self.head_norm {
                let heads = Rows { rows: rows.rows * rows.width / self.head_width, width: self.head_width, ..*rows };
                let normal = self.normal(builder, name(&format!("{part}_norm")), heads);
                rows.tensor = normal.tensor;
            }
            if self.rotary && itself {
                *rows = builder.rotate(name(&format!("{part}_rotation")), *rows);
            }
        }
        projected.map(|rows| rows.tensor).to_vec()
    }

    fn feed(&self, builder: &mut Builder, block: u32, from: Rows) -> Rows {
        let Some(experts) = self.feed.experts else {
            return self.feed_of(builder, format!("block{block}.feed"), from, self.feed.width, 1);
        };
        let name = |part: &str| format!("block{block}.{part}");
        let scores = builder.linear(name("router"), from, experts.count, false, WeightSplit::Whole);
        let shares = builder.add(
            name("router.softmax"),
            OpKind::Softmax { elements: scores.elements() },
            &[scores.tensor],
            scores.elements(),
            Owned::NOTHING,
        );
        // Each token goes to `active` experts, as that many rows.
        let rows = from.rows * experts.active;
        let elements = rows * from.width;
        let sent = builder.add(name("send"), OpKind::Copy { elements }, &[from.tensor], elements, Owned::NOTHING);
        let sent = Rows { tensor: sent, rows, width: from.width };
        let fed = self.feed_of(builder, name("experts"), sent, self.feed.width, experts.count);
        let kind = OpKind::Elementwise { elements: fed.elements(), inputs: experts.active as u32, product: true };
        let joined = builder.add(name("join"), kind, &[fed.tensor, shares], from.elements(), Owned::NOTHING);
        let joined = Rows { tensor: joined, ..from };
        if experts.shared == 0 {
            return joined;
        }
        let mut shared = self.feed_of(builder, name("shared"), from, experts.shared, 1);
        if experts.weighed {
            let share = builder.linear(name("shared.share"), from, 1, false, WeightSplit::Whole);
            let share = builder.apply(name("shared.sigmoid"), share, Function::Sigmoid);
            shared = builder.combine(name("shared.product"), shared, share, true);
        }
        builder.combine(name("sum_shared"), joined, shared, false)
    }

    /// A feed-forward part with `copies` of its weights, of which each row uses one.
    fn feed_of(&self, builder: &mut Builder, name: String, from: Rows, width: u64, copies: u64) -> Rows {
        let biases = |columns: u64| if self.feed.bias { columns } else { 0 };
        let inner = Owned::parameters((from.width * width + biases(width)) * copies);
        let outer = Owned::parameters((from.width * width + biases(from.width)) * copies);
        let middle = match self.feed.gated {
            true => {
                let gate = builder.linear_with(format!("{name}.gate"), from, width, inner, WeightSplit::Columns);
                let up = builder.linear_with(format!("{name}.up"), from, width, inner, WeightSplit::Columns);
                let open = builder.apply(format!("{name}.activation"), gate, self.feed.function);
                builder.combine(format!("{name}.product"), open, up, true)
            }
            false => {
                let up = builder.linear_with(format!("{name}.up"), from, width, inner, WeightSplit::Columns);
                builder.apply(format!("{name}.activation"), up, self.feed.function)
            }
        };
        let middle = match self.feed.dropout {
            true => builder.dropout(format!("{name}.dropout"), middle),
            false => middle,
        };
        builder.linear_with(format!("{name}.down"), middle, from.width, outer, WeightSplit::Rows)
    }
}

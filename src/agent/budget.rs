//! What a turn may use up: tokens, tool calls, money. Its user and its route have budgets of the day besides, of which the
//! turn gets what is left. A turn that would exceed one stops there and says so.

use std::sync::atomic::{AtomicU64, Ordering};

use super::model::ModelReply;

/// What may be used up; `None` is without bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Tokens, read and written.
    pub tokens: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// Millionths of the currency of [`Prices`].
    pub micros: Option<u64>,
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Tokens, read and written.
    pub tokens: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Millionths of the currency of [`Prices`].
    pub micros: u64,
}

/// What a million tokens cost, in millionths of the operator's currency (`model.prices`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// Tokens that are read.
    pub input: u64,
    /// Tokens that are written.
    pub output: u64,
}

/// One budget that holds for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Purse {
    /// Which it is, for the person: `the budget of this turn`, `your budget of today`.
    whose: &'static str,
    budget: Budget,
    /// What was used up before the turn.
    before: Spent,
}

/// The budgets of a turn, and what it has used up.
#[derive(Debug, Default)]
pub struct Spending {
    purses: Vec<Purse>,
    prices: Prices,
    tokens: AtomicU64,
    tool_calls: AtomicU64,
    micros: AtomicU64,
}

impl Spending {
    /// Without any budget.
    pub fn new(prices: Prices) -> Self {
        Self { prices, ..Self::default() }
    }

    /// One more budget to keep to, of which `before` was used up already. `whose` tells a person which it is.
    #[must_use]
    pub fn with(mut self, whose: &'static str, budget: Budget, before: Spent) -> Self {
        self.purses.push(Purse { whose, budget, before });
        self
    }

    /// What the turn used up so far.
    pub fn spent(&self) -> Spent {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Spent { tokens: load(&self.tokens), tool_calls: load(&self.tool_calls), micros: load(&self.micros) }
    }

    /// Counts an answer of the model.
    pub fn add_reply(&self, reply: &ModelReply) {
        let Some(usage) = reply.usage else { return };
        self.tokens.fetch_add(usage.total.max(usage.input + usage.output), Ordering::Relaxed);
        let cost = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let micros =
            (cost(usage.input, self.prices.input) + cost(usage.output, self.prices.output)).div_ceil(1_000_000);
        self.micros.fetch_add(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts tool calls.
    pub fn add_calls(&self, calls: usize) {
        self.tool_calls.fetch_add(calls as u64, Ordering::Relaxed);
    }

    /// Why the turn may not go on with so many more tool calls, for the person who asked.
    pub fn exceeded_by(&self, calls: usize) -> Option<String> {
        let now = self.spent();
        self.purses.iter().find_map(|Purse { whose, budget, before }| {
            let (tokens, micros) = (before.tokens + now.tokens, before.micros + now.micros);
            let tool_calls = before.tool_calls + now.tool_calls + calls as u64;
            let is_spent = |used: u64, most: Option<u64>| most.filter(|most| used >= *most);
            let what = if let Some(most) = is_spent(tokens, budget.tokens) {
                format!("{most} tokens")
            } else if let Some(most) = budget.tool_calls.filter(|most| tool_calls > *most) {
                format!("{most} tool calls")
            } else if let Some(most) = is_spent(micros, budget.micros) {
                format!("a cost of {}", decimal(most))
            } else {
                return None;
            };
            Some(format!("I stopped here: {whose} is {what}, and it is used up. The operator can raise it."))
        })
    }
}

/// Millionths as a decimal number.
fn decimal(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::model::Usage;

    fn reply(input: u64, output: u64) -> ModelReply {
        ModelReply {
            usage: Some(Usage { input, output, total: input + output, ..Usage::default() }),
            ..ModelReply::default()
        }
    }

    #[test]
    fn each_budget_stops_the_turn_and_says_which() {
        let budget = |tokens, tool_calls, micros| Budget { tokens, tool_calls, micros };
        for (budget, told) in [
            (budget(Some(100), None, None), Some("100 tokens")),
            (budget(Some(101), None, None), None),
            (budget(None, Some(2), None), Some("2 tool calls")),
            (budget(None, Some(3), None), None),
            (budget(None, None, Some(250)), Some("a cost of 0.00025")),
            (budget(None, None, Some(251)), None),
        ] {
            let spending = Spending::new(Prices { input: 2_000_000, output: 4_000_000 })
                .with("the budget of this turn", Budget::default(), Spent::default())
                .with("your budget of today", budget, Spent { tokens: 10, tool_calls: 1, micros: 20 });
            spending.add_reply(&reply(65, 25));
            assert_eq!(spending.spent(), Spent { tokens: 90, tool_calls: 0, micros: 230 });
            let exceeded = spending.exceeded_by(2);
            assert_eq!(exceeded.is_some(), told.is_some(), "{budget:?}: {exceeded:?}");
            if let (Some(exceeded), Some(told)) = (exceeded, told) {
                assert!(exceeded.contains("your budget of today") && exceeded.contains(told), "{exceeded}");
            }
        }
    }

    #[test]
    fn what_a_model_does_not_count_costs_nothing() {
        let spending = Spending::new(Prices::default());
        spending.add_reply(&ModelReply::default());
        spending.add_calls(2);
        assert_eq!(spending.spent(), Spent { tool_calls: 2, ..Spent::default() });
        assert_eq!(decimal(1_500_000), "1.5");
        assert_eq!(decimal(2_000_000), "2");
    }
}

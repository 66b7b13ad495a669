//! How often and when a model is asked again. Dialects make single attempts.

use std::time::Duration;

use super::model::{ModelError, Retry};

/// How often and when a model that did not answer is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Attempts after the first.
    pub retries: u32,
    /// The wait before the first retry; doubles with each further one, plus up to half of it by chance.
    pub base: Duration,
    /// The longest `Retry-After` that is waited for. A longer one ends the turn; the person is told when to come back.
    pub longest_wait: Duration,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { retries: 3, base: Duration::from_secs(1), longest_wait: Duration::from_secs(60) }
    }
}

impl Attempts {
    /// How long to wait after attempt `attempt` (from 1) failed; `None` to give up. What the provider asks for is
    /// kept exactly.
    pub(crate) fn wait(&self, attempt: u32, error: &ModelError) -> Option<Duration> {
        if attempt > self.retries {
            return None;
        }
        match error.retry {
            Retry::Never => None,
            Retry::After(wait) => (wait <= self.longest_wait).then_some(wait),
            Retry::BackOff => {
                let wait = self.base.saturating_mul(2_u32.saturating_pow(attempt - 1));
                Some(wait.min(self.longest_wait).mul_f64(rand::random_range(1.0..1.5)).min(self.longest_wait))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::model::Reason;

    fn error(retry: Retry) -> ModelError {
        let (for_user, cause) = (String::new(), String::new());
        ModelError { reason: Reason::RateLimit, status: None, retry, for_user, cause }
    }

    #[test]
    fn waits() {
        let attempts = Attempts::default();
        let secs = Duration::from_secs;
        for (attempt, least) in [(1, 1), (2, 2), (3, 4)] {
            let wait = attempts.wait(attempt, &error(Retry::BackOff)).unwrap();
            assert!(wait >= secs(least) && wait < secs(least) * 3 / 2, "{wait:?}");
            assert_eq!(attempts.wait(attempt, &error(Retry::After(secs(60)))), Some(secs(60)));
            assert_eq!(attempts.wait(attempt, &error(Retry::After(secs(61)))), None);
            assert_eq!(attempts.wait(attempt, &error(Retry::Never)), None);
        }
        assert_eq!(attempts.wait(4, &error(Retry::BackOff)), None);
        assert_eq!(attempts.wait(4, &error(Retry::After(Duration::ZERO))), None);
        let many = Attempts { retries: u32::MAX, ..attempts };
        assert_eq!(many.wait(u32::MAX, &error(Retry::BackOff)), Some(secs(60)));
    }
}

//! How long a provider asks us to wait: the `Retry-After` header (RFC 9110 §10.2.3) and `retry-after-ms`, which OpenAI
//! and others send besides it.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The time to wait, counted from `now` or, for a date, from the server's own `Date` when it sent one, so that a
/// clock that is off does no harm. A date that has passed means no wait. `None` when nothing readable was said.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let value = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(value) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = date(value)?;
    let from = text(DATE.as_str()).and_then(date).unwrap_or(now);
    Some(Duration::try_from(until.duration_since(from)).unwrap_or(Duration::ZERO))
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

fn date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(headers: &[(&'static str, &str)]) -> Option<Duration> {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>();
        retry_after(&headers, "2015-10-21T07:27:30Z".parse().unwrap())
    }

    #[test]
    fn seconds_milliseconds_and_dates() {
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(parsed(&[]), None);
        assert_eq!(parsed(&[("retry-after", "20")]), seconds(20));
        assert_eq!(parsed(&[("retry-after", " 0 ")]), seconds(0));
        assert_eq!(parsed(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
        assert_eq!(parsed(&[("retry-after-ms", "250"), ("retry-after", "1")]), Some(Duration::from_millis(250)));
        assert_eq!(parsed(&[("retry-after-ms", "soon"), ("retry-after", "1")]), seconds(1));
        assert_eq!(parsed(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), seconds(30));
        assert_eq!(parsed(&[("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")]), seconds(0));
        let by_its_own_clock =
            [("retry-after", "Wed, 21 Oct 2015 09:00:05 GMT"), ("date", "Wed, 21 Oct 2015 09:00:00 GMT")];
        assert_eq!(parsed(&by_its_own_clock), seconds(5));
    }

    #[test]
    fn nonsense_is_no_answer() {
        for nonsense in ["", "-1", "soon", "NaN", "inf", "1e400", "2015-10-21", "\u{e9}"] {
            assert_eq!(parsed(&[("retry-after", nonsense)]), None, "{nonsense:?}");
        }
    }
}

//! The other half of `verify`: signs a request as a provider would, for `hookgate webhook test`. Pure.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::{svix_key, twilio_signed};
use crate::webhook::route::{Algorithm, Encoding, HmacOptions, Scheme};

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct ToSign<'a> {
    /// The raw bytes.
    pub body: &'a [u8],
    /// The route's public address, for `twilio`.
    pub url: Option<&'a str>,
    /// Unix seconds.
    pub now: i64,
    /// The delivery's id, which `svix` and `standard` sign.
    pub id: &'a str,
}

/// Why a request cannot be signed: the rest of a sentence about the secret, without the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotSign(&'static str);

/// The headers that sign a request, so that `verify` takes it. `auto` signs as GitHub does. The time that `linear` signs
/// stands in the body and is the caller's to write.
pub fn sign(scheme: &Scheme, secret: &SecretString, request: ToSign<'_>) -> Result<HeaderMap, CannotSign> {
    let secret = secret.expose_secret();
    let key = secret.as_bytes();
    let ToSign { body, now, .. } = request;
    let time = now.to_string();
    let hex = |signed: &[&[u8]]| hex::encode(mac::<Hmac<Sha256>>(key, signed));
    let list: Vec<(&str, String)> = match scheme {
        Scheme::Auto | Scheme::GitHub => vec![("x-hub-signature-256", format!("sha256={}", hex(&[body])))],
        Scheme::Bitbucket => vec![("x-hub-signature", format!("sha256={}", hex(&[body])))],
        Scheme::GitLab => vec![("x-gitlab-token", secret.to_owned())],
        Scheme::Telegram => vec![("x-telegram-bot-api-secret-token", secret.to_owned())],
        Scheme::Bearer => vec![("authorization", format!("Bearer {secret}"))],
        Scheme::Basic => vec![("authorization", format!("Basic {}", STANDARD.encode(credentials(secret))))],
        Scheme::Stripe => {
            let signature = hex(&[time.as_bytes(), b".", body]);
            vec![("stripe-signature", format!("t={time},v1={signature}"))]
        }
        Scheme::Paddle => {
            let signature = hex(&[time.as_bytes(), b":", body]);
            vec![("paddle-signature", format!("ts={time};h1={signature}"))]
        }
        Scheme::Slack => {
            let signature = hex(&[b"v0:", time.as_bytes(), b":", body]);
            vec![("x-slack-signature", format!("v0={signature}")), ("x-slack-request-timestamp", time)]
        }
        Scheme::Svix => svix(secret, request, ["svix-id", "svix-timestamp", "svix-signature"])?,
        Scheme::Standard => svix(secret, request, ["webhook-id", "webhook-timestamp", "webhook-signature"])?,
        Scheme::Shopify => {
            vec![("x-shopify-hmac-sha256", STANDARD.encode(mac::<Hmac<Sha256>>(key, &[body])))]
        }
        Scheme::Linear => vec![("linear-signature", hex(&[body]))],
        Scheme::Gitea => vec![("x-gitea-signature", hex(&[body]))],
        Scheme::Sentry => vec![("sentry-hook-signature", hex(&[body]))],
        Scheme::PagerDuty => vec![("x-pagerduty-signature", format!("v1={}", hex(&[body])))],
        Scheme::Twilio => {
            let url = request.url.ok_or(CannotSign("cannot be used without the route's public_url"))?;
            let signed =
                twilio_signed(url, body).map_err(|_| CannotSign("does not sign this body under this address"))?;
            vec![("x-twilio-signature", STANDARD.encode(mac::<Hmac<Sha1>>(key, &[&signed])))]
        }
        Scheme::Hmac(options) => configured(key, body, &time, options),
    };
    headers(&list)
}

/// `user:password`; a secret without a user belongs to any.
fn credentials(secret: &str) -> String {
    if secret.contains(':') { secret.to_owned() } else { format!("hookgate:{secret}") }
}

fn svix<'n>(secret: &str, request: ToSign<'_>, names: [&'n str; 3]) -> Result<Vec<(&'n str, String)>, CannotSign> {
    let key = svix_key(secret).map_err(CannotSign)?;
    let time = request.now.to_string();
    let signed = [request.id.as_bytes(), b".", time.as_bytes(), b".", request.body];
    let signature = format!("v1,{}", STANDARD.encode(mac::<Hmac<Sha256>>(&key, &signed)));
    Ok(names.into_iter().zip([request.id.to_owned(), time, signature]).collect())
}

fn configured<'o>(key: &[u8], body: &[u8], time: &str, options: &'o HmacOptions) -> Vec<(&'o str, String)> {
    let time = if options.timestamp_header.is_some() { time } else { "" };
    let signed = options.signed_bytes(time, body);
    let signature = match options.algorithm {
        Algorithm::Sha1 => mac::<Hmac<Sha1>>(key, &signed),
        Algorithm::Sha256 => mac::<Hmac<Sha256>>(key, &signed),
        Algorithm::Sha512 => mac::<Hmac<Sha512>>(key, &signed),
    };
    let written = match options.encoding {
        Encoding::Hex | Encoding::Either => hex::encode(signature),
        Encoding::Base64 => STANDARD.encode(signature),
    };
    let value = format!("{}{written}", options.prefix.as_deref().unwrap_or_default());
    let timestamp = options.timestamp_header.iter().map(|header| (header.as_str(), time.to_owned()));
    std::iter::once((options.header.as_str(), value)).chain(timestamp).collect()
}

fn mac<M: Mac + KeyInit>(key: &[u8], signed: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of an HMAC may have any length");
    signed.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Only a secret that is sent as it stands can hold what no header may.
fn headers(list: &[(&str, String)]) -> Result<HeaderMap, CannotSign> {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| CannotSign("goes into a header of a bad name"))?;
        let value = Some(value).filter(|value| value.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        let value = value.and_then(|value| HeaderValue::from_str(value).ok());
        let mut value = value.ok_or(CannotSign("holds a character that no header can carry"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::signature::{Request, SignatureError, verify};

    const SECRET: &str = "a long shared secret";
    const NOW: i64 = 1_760_000_000;
    const BODY: &[u8] = br#"{"id":"evt_1","webhookTimestamp":1760000000123,"text":"a+b=c&d"}"#;

    fn hmac(change: impl FnOnce(&mut HmacOptions)) -> Scheme {
        let mut options = HmacOptions {
            header: "x-sig".to_owned(),
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Either,
            prefix: None,
            timestamp_header: None,
            signed: "{body}".to_owned(),
            tolerance: 300,
        };
        change(&mut options);
        Scheme::Hmac(options)
    }

    fn schemes() -> Vec<Scheme> {
        let mut schemes: Vec<Scheme> = Scheme::NAMED.into_iter().map(|(_, scheme)| scheme).collect();
        for algorithm in [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512] {
            for encoding in [Encoding::Hex, Encoding::Base64, Encoding::Either] {
                schemes.push(hmac(|options| (options.algorithm, options.encoding) = (algorithm, encoding)));
            }
        }
        schemes.push(hmac(|options| options.prefix = Some("v0=".to_owned())));
        schemes.push(hmac(|options| options.signed = "{timestamp}.{body}".to_owned()));
        schemes.push(hmac(|options| {
            options.signed = "v0:{timestamp}:{body}".to_owned();
            options.timestamp_header = Some("x-time".to_owned());
        }));
        schemes
    }

    fn check(scheme: &Scheme, signed_with: &str, secret: &str, body: &[u8]) -> Result<(), SignatureError> {
        let url = Some("https://example.org/webhooks/x");
        let unsigned = ToSign { body: BODY, url, now: NOW, id: "test-1" };
        let headers = sign(scheme, &signed_with.into(), unsigned).expect("signed");
        verify(scheme, &[secret.into()], Request { headers: &headers, body, url, now: NOW })
    }

    #[test]
    fn every_scheme_verifies_what_it_signs_and_nothing_else() {
        let schemes = schemes();
        assert!(schemes.len() >= 30);
        for scheme in &schemes {
            assert_eq!(check(scheme, SECRET, SECRET, BODY), Ok(()), "{scheme:?}");
            assert!(check(scheme, SECRET, "another shared secret", BODY).is_err(), "{scheme:?}");
            let sends_the_secret = matches!(scheme, Scheme::GitLab | Scheme::Telegram | Scheme::Bearer | Scheme::Basic);
            assert_eq!(check(scheme, SECRET, SECRET, b"{}").is_err(), !sends_the_secret, "{scheme:?}");
        }
        let whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for scheme in [Scheme::Svix, Scheme::Standard, Scheme::Stripe, Scheme::Auto] {
            assert_eq!(check(&scheme, whsec, whsec, BODY), Ok(()), "{scheme:?}");
        }
        assert_eq!(check(&Scheme::Basic, "user:password", "user:password", BODY), Ok(()));
    }

    #[test]
    fn forms_are_signed_for_twilio() {
        let url = Some("https://example.org/webhooks/x");
        let body = b"To=%2B1&Body=hello+there&From=%2B2";
        let headers = sign(&Scheme::Twilio, &SECRET.into(), ToSign { body, url, now: NOW, id: "" }).expect("signed");
        let request = Request { headers: &headers, body, url, now: NOW };
        assert_eq!(verify(&Scheme::Twilio, &[SECRET.into()], request), Ok(()));
        let refused = sign(&Scheme::Twilio, &SECRET.into(), ToSign { body, url: None, now: NOW, id: "" });
        assert!(refused.expect_err("no address").to_string().contains("public_url"));
    }

    #[test]
    fn a_secret_that_cannot_be_sent_is_told_of_and_not_shown() {
        let unsigned = ToSign { body: BODY, url: None, now: NOW, id: "" };
        for (scheme, secret) in [
            (Scheme::Bearer, "two\nlines"),
            (Scheme::GitLab, "straße"),
            (Scheme::Svix, "whsec_short"),
            (Scheme::Standard, "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ] {
            let error = sign(&scheme, &secret.into(), unsigned).expect_err(secret).to_string();
            assert!(!error.contains(secret), "{error}");
        }
    }
}

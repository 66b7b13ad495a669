//! Whether a request was signed with a route's secret, and which delivery it is. Pure: bytes and a clock in, a verdict out.
//!
//! One small function per scheme. Comparisons take the same time wherever the difference is, several secrets may be
//! accepted at once, and no error carries a signature, neither the one received nor the one expected.

mod sign;

use std::borrow::Cow;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, general_purpose};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

use crate::webhook::payload::Payload;
use crate::webhook::route::{Algorithm, Encoding, HmacOptions, Scheme};
pub use sign::{CannotSign, ToSign, sign};

/// In place of a secret: nothing is verified (loopback only). Never a key.
pub const INSECURE_NO_AUTH: &str = "INSECURE_NO_AUTH";

/// Seconds a timestamp may be off, either way, where the scheme has no option for it.
const TOLERANCE: i64 = 300;

/// The shortest key that may stand behind `whsec_`, in bytes.
const MIN_WHSEC_BYTES: usize = 16;

/// The longest delivery id that is kept as it is, in bytes.
const MAX_ID_BYTES: usize = 200;

/// Padded or not, as senders differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    general_purpose::GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a request does not verify. For the log; the sender is only told `Invalid signature`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Nothing to verify with.
    #[error("the route has no usable secret")]
    NoSecret,
    /// `scheme: auto` found no header of any scheme it knows.
    #[error("there is no signature header of a known scheme")]
    Unsigned,
    /// A header of the scheme is missing.
    #[error("the header {0} is missing")]
    Missing(String),
    /// A header that must be unique came more than once.
    #[error("the header {0} came more than once")]
    Repeated(String),
    /// A header of the scheme cannot be read.
    #[error("the header {0} is not written as its scheme demands")]
    Malformed(String),
    /// Signed too long ago, or ahead of our clock; by how many seconds.
    #[error("the timestamp is {0} s off")]
    Stale(u64),
    /// Signed with another secret, or another body.
    #[error("the signature does not match")]
    Mismatch,
}

use SignatureError::{Malformed, Mismatch, Missing, NoSecret, Repeated, Stale, Unsigned};

/// What a signature is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The raw bytes.
    pub body: &'a [u8],
    /// The address the sender used, for `twilio`; `None` where no `public_url` is configured.
    pub url: Option<&'a str>,
    /// Unix seconds.
    pub now: i64,
}

/// Verifies a request over its raw body.
///
/// `scheme: auto` lets the headers choose, in the reference's order (`spec/hermes-gateway.md` §1.7), then Stripe, then
/// Standard Webhooks; the first one present decides alone. Blank secrets are never keys. Binding: `vectors/signature.json`.
pub fn verify(scheme: &Scheme, secrets: &[SecretString], request: Request<'_>) -> Result<(), SignatureError> {
    let secrets: Vec<&str> = secrets
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|secret| !secret.trim().is_empty() && secret.trim() != INSECURE_NO_AUTH)
        .collect();
    if secrets.is_empty() {
        return Err(NoSecret);
    }
    let request = &request;
    match Check::of(scheme, request.headers).ok_or(Unsigned)? {
        Check::Svix => svix(request, &secrets, "svix"),
        Check::Standard => svix(request, &secrets, "webhook"),
        Check::GitHub => prefixed_hex(request, &secrets, "x-hub-signature-256"),
        Check::GitLab => token(request, &secrets, "x-gitlab-token"),
        Check::GenericV2 => generic_v2(request, &secrets),
        Check::GenericV1 => plain_hex(request, &secrets, "x-webhook-signature"),
        Check::Stripe => stripe(request, &secrets),
        Check::Slack => slack(request, &secrets),
        Check::Shopify => shopify(request, &secrets),
        Check::Linear => linear(request, &secrets),
        Check::Gitea => gitea(request, &secrets),
        Check::Bitbucket => prefixed_hex(request, &secrets, "x-hub-signature"),
        Check::Sentry => plain_hex(request, &secrets, "sentry-hook-signature"),
        Check::Paddle => paddle(request, &secrets),
        Check::PagerDuty => pagerduty(request, &secrets),
        Check::Twilio => twilio(request, &secrets),
        Check::Telegram => token(request, &secrets, "x-telegram-bot-api-secret-token"),
        Check::Bearer => bearer(request, &secrets),
        Check::Basic => basic(request, &secrets),
        Check::Hmac(options) => configured_hmac(request, &secrets, options),
    }
}

/// The scheme that decides about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check<'a> {
    Svix,
    Standard,
    GitHub,
    GitLab,
    GenericV2,
    GenericV1,
    Stripe,
    Slack,
    Shopify,
    Linear,
    Gitea,
    Bitbucket,
    Sentry,
    Paddle,
    PagerDuty,
    Twilio,
    Telegram,
    Bearer,
    Basic,
    Hmac(&'a HmacOptions),
}

impl<'a> Check<'a> {
    fn of(scheme: &'a Scheme, headers: &HeaderMap) -> Option<Self> {
        let any = |names: &[&str]| names.iter().any(|name| headers.contains_key(*name));
        match scheme {
            Scheme::GitHub => Some(Self::GitHub),
            Scheme::GitLab => Some(Self::GitLab),
            Scheme::Stripe => Some(Self::Stripe),
            Scheme::Svix => Some(Self::Svix),
            Scheme::Standard => Some(Self::Standard),
            Scheme::Slack => Some(Self::Slack),
            Scheme::Shopify => Some(Self::Shopify),
            Scheme::Linear => Some(Self::Linear),
            Scheme::Gitea => Some(Self::Gitea),
            Scheme::Bitbucket => Some(Self::Bitbucket),
            Scheme::Sentry => Some(Self::Sentry),
            Scheme::Paddle => Some(Self::Paddle),
            Scheme::PagerDuty => Some(Self::PagerDuty),
            Scheme::Twilio => Some(Self::Twilio),
            Scheme::Telegram => Some(Self::Telegram),
            Scheme::Bearer => Some(Self::Bearer),
            Scheme::Basic => Some(Self::Basic),
            Scheme::Hmac(options) => Some(Self::Hmac(options)),
            Scheme::Auto => [
                (Self::Svix, any(&["svix-id", "svix-timestamp", "svix-signature"])),
                (Self::GitHub, any(&["x-hub-signature-256"])),
                (Self::GitLab, any(&["x-gitlab-token"])),
                (Self::GenericV2, any(&["x-webhook-signature-v2"])),
                (Self::GenericV1, any(&["x-webhook-signature"])),
                (Self::Stripe, any(&["stripe-signature"])),
                (Self::Standard, any(&["webhook-id", "webhook-timestamp", "webhook-signature"])),
            ]
            .into_iter()
            .find_map(|(check, is_present)| is_present.then_some(check)),
        }
    }
}

impl<'a> Request<'a> {
    /// The only value of a header, in visible ASCII.
    fn header(&self, name: &str) -> Result<&'a str, SignatureError> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().ok_or_else(|| Missing(name.to_owned()))?;
        if values.next().is_some() {
            return Err(Repeated(name.to_owned()));
        }
        value.to_str().map(str::trim).map_err(|_| Malformed(name.to_owned()))
    }

    /// Refuses a time, in Unix seconds, that is more than `tolerance` away from now.
    fn check_time(&self, name: &str, seconds: &str, tolerance: i64) -> Result<(), SignatureError> {
        let time: i64 = seconds
            .parse()
            .ok()
            .filter(|_| seconds.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| Malformed(name.to_owned()))?;
        let off = self.now.abs_diff(time);
        if off > tolerance.unsigned_abs() { Err(Stale(off)) } else { Ok(()) }
    }
}

/// The secrets as keys.
fn keys<'s>(secrets: &'s [&str]) -> impl Iterator<Item = &'s [u8]> {
    secrets.iter().map(|secret| secret.as_bytes())
}

/// `sha256=<hex>` over the body: GitHub, Bitbucket.
fn prefixed_hex(request: &Request<'_>, secrets: &[&str], header: &str) -> Result<(), SignatureError> {
    let hex = request.header(header)?.strip_prefix("sha256=").ok_or_else(|| Malformed(header.to_owned()))?;
    matching(keys(secrets), &[request.body], &[&sha256_hex(header, hex)?])
}

/// `<hex>` over the body: the reference's `X-Webhook-Signature`, Sentry, Gitea.
fn plain_hex(request: &Request<'_>, secrets: &[&str], header: &str) -> Result<(), SignatureError> {
    let signature = sha256_hex(header, request.header(header)?)?;
    matching(keys(secrets), &[request.body], &[&signature])
}

/// The header is the secret itself: GitLab, Telegram.
fn token(request: &Request<'_>, secrets: &[&str], header: &str) -> Result<(), SignatureError> {
    one_of(secrets, request.header(header)?)
}

fn one_of(secrets: &[&str], given: &str) -> Result<(), SignatureError> {
    if secrets.iter().any(|secret| same_text(secret, given)) { Ok(()) } else { Err(Mismatch) }
}

/// `X-Slack-Signature: v0=<hex>`, over `v0:<X-Slack-Request-Timestamp>:<body>`.
fn slack(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "x-slack-signature";
    const TIME: &str = "x-slack-request-timestamp";
    let hex = request.header(HEADER)?.strip_prefix("v0=").ok_or_else(|| Malformed(HEADER.to_owned()))?;
    let time = request.header(TIME)?;
    request.check_time(TIME, time, TOLERANCE)?;
    matching(keys(secrets), &[b"v0:", time.as_bytes(), b":", request.body], &[&sha256_hex(HEADER, hex)?])
}

/// `X-Shopify-Hmac-Sha256: <base64>`, over the body.
fn shopify(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "x-shopify-hmac-sha256";
    let signature = BASE64.decode(request.header(HEADER)?).map_err(|_| Malformed(HEADER.to_owned()))?;
    matching(keys(secrets), &[request.body], &[&signature])
}

/// `Linear-Signature: <hex>`, over the body, whose `webhookTimestamp` (milliseconds) must be fresh.
fn linear(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const TIME: &str = "webhookTimestamp";
    plain_hex(request, secrets, "linear-signature")?;
    let payload = Payload::parse(None, request.body).map_err(|_| Malformed(TIME.to_owned()))?;
    let millis = payload.get(TIME).ok_or_else(|| Missing(TIME.to_owned()))?;
    let millis: i64 = millis.text().parse().map_err(|_| Malformed(TIME.to_owned()))?;
    request.check_time(TIME, &(millis / 1_000).to_string(), TOLERANCE)
}

/// `X-Gitea-Signature: <hex>`, over the body; Forgejo and Gogs name it after themselves.
fn gitea(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    let names = ["x-forgejo-signature", "x-gitea-signature", "x-gogs-signature"];
    let header = names.into_iter().find(|name| request.headers.contains_key(*name));
    plain_hex(request, secrets, header.ok_or_else(|| Missing("x-gitea-signature".to_owned()))?)
}

/// `Paddle-Signature: ts=<seconds>;h1=<hex>`, over `<ts>:<body>`; any `h1` may match.
fn paddle(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "paddle-signature";
    let (time, signatures) = timed_fields(HEADER, request.header(HEADER)?, ';', "ts", "h1")?;
    request.check_time(HEADER, time, TOLERANCE)?;
    let signatures: Vec<&[u8]> = signatures.iter().map(<[u8; 32]>::as_slice).collect();
    matching(keys(secrets), &[time.as_bytes(), b":", request.body], &signatures)
}

/// `X-PagerDuty-Signature: v1=<hex>,v1=<hex>`, over the body; any may match.
fn pagerduty(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "x-pagerduty-signature";
    let values = request.header(HEADER)?.split(',').filter_map(|value| value.trim().strip_prefix("v1="));
    let signatures: Vec<[u8; 32]> = values.filter_map(|hex| sha256_hex(HEADER, hex).ok()).collect();
    let signatures: Vec<&[u8]> = signatures.iter().map(<[u8; 32]>::as_slice).collect();
    if signatures.is_empty() {
        return Err(Malformed(HEADER.to_owned()));
    }
    matching(keys(secrets), &[request.body], &signatures)
}

/// `X-Twilio-Signature: <base64 of HMAC-SHA1>`, over what [`twilio_signed`] says.
fn twilio(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "x-twilio-signature";
    let signature = BASE64.decode(request.header(HEADER)?).map_err(|_| Malformed(HEADER.to_owned()))?;
    let url = request.url.ok_or_else(|| Missing("public_url".to_owned()))?;
    let signed = twilio_signed(url, request.body)?;
    let is_match = keys(secrets).any(|key| is_mac::<Hmac<Sha1>>(key, &[&signed], &signature));
    if is_match { Ok(()) } else { Err(Mismatch) }
}

/// What Twilio signs: the address, followed by the form's names and values in the order of the names. A body that is no
/// form is covered by its `bodySHA256` in the address.
fn twilio_signed(url: &str, body: &[u8]) -> Result<Vec<u8>, SignatureError> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mut signed = url.as_bytes().to_vec();
    match form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "bodySHA256") {
        Some((_, expected)) if same_text(&expected.to_ascii_lowercase(), &body_hash(body)) => {}
        Some(_) => return Err(Mismatch),
        None => {
            let mut fields: Vec<(Cow<'_, str>, Cow<'_, str>)> = form_urlencoded::parse(body).collect();
            fields.sort();
            fields.dedup();
            for (name, value) in fields {
                signed.extend_from_slice(name.as_bytes());
                signed.extend_from_slice(value.as_bytes());
            }
        }
    }
    Ok(signed)
}

/// `Authorization: Bearer <secret>`.
fn bearer(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    one_of(secrets, credentials(request, "bearer")?)
}

/// `Authorization: Basic <base64 of user:password>`; the secret is `user:password`, or the password of any user.
fn basic(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    let malformed = || Malformed("authorization".to_owned());
    let decoded = BASE64.decode(credentials(request, "basic")?).map_err(|_| malformed())?;
    let pair = String::from_utf8(decoded).map_err(|_| malformed())?;
    let (_, password) = pair.split_once(':').ok_or_else(malformed)?;
    let knows = |secret: &&str| same_text(secret, if secret.contains(':') { &pair } else { password });
    if secrets.iter().any(knows) { Ok(()) } else { Err(Mismatch) }
}

fn credentials<'a>(request: &Request<'a>, scheme: &str) -> Result<&'a str, SignatureError> {
    const HEADER: &str = "authorization";
    match request.header(HEADER)?.split_once(' ') {
        Some((name, value)) if name.eq_ignore_ascii_case(scheme) => Ok(value.trim()),
        _ => Err(Malformed(HEADER.to_owned())),
    }
}

/// `X-Webhook-Signature-V2: <hex>`, over `<X-Webhook-Timestamp>.<body>`.
fn generic_v2(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "x-webhook-signature-v2";
    const TIME: &str = "x-webhook-timestamp";
    let signature = sha256_hex(HEADER, request.header(HEADER)?)?;
    let time = request.header(TIME)?;
    request.check_time(TIME, time, TOLERANCE)?;
    matching(keys(secrets), &[time.as_bytes(), b".", request.body], &[&signature])
}

/// Svix and Standard Webhooks: `<prefix>-signature: v1,<base64> …`, over `<id>.<timestamp>.<body>`; any `v1` may match.
fn svix(request: &Request<'_>, secrets: &[&str], prefix: &str) -> Result<(), SignatureError> {
    let [id, timestamp, signature] = ["id", "timestamp", "signature"].map(|part| format!("{prefix}-{part}"));
    let (id, time, values) = (request.header(&id)?, request.header(&timestamp)?, request.header(&signature)?);
    request.check_time(&timestamp, time, TOLERANCE)?;
    let signatures: Vec<Vec<u8>> = values
        .split(' ')
        .filter_map(|value| value.strip_prefix("v1,"))
        .filter_map(|value| STANDARD.decode(value).ok())
        .collect();
    let signatures: Vec<&[u8]> = signatures.iter().map(Vec::as_slice).collect();
    let keys: Vec<Cow<'_, [u8]>> = secrets.iter().filter_map(|secret| svix_key(secret).ok()).collect();
    if keys.is_empty() {
        return Err(NoSecret);
    }
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", request.body];
    matching(keys.iter().map(AsRef::as_ref), &signed, &signatures)
}

/// The key a secret stands for under Svix and Standard Webhooks: base64 after `whsec_`, else the text itself. The error
/// says what is wrong with it, without the secret.
pub(crate) fn svix_key(secret: &str) -> Result<Cow<'_, [u8]>, &'static str> {
    if secret.trim_start().starts_with("v1,") {
        return Err("begins with `v1,`, which belongs to signatures: remove it");
    }
    let Some(encoded) = secret.strip_prefix("whsec_") else { return Ok(Cow::Borrowed(secret.as_bytes())) };
    let key = STANDARD.decode(encoded).map_err(|_| "is not base64 after `whsec_`: copy it again")?;
    if key.len() < MIN_WHSEC_BYTES {
        return Err("holds fewer than 16 bytes after `whsec_`: copy it again");
    }
    Ok(Cow::Owned(key))
}

/// `Stripe-Signature: t=<seconds>,v1=<hex>,…`, over `<t>.<body>`; any `v1` may match.
fn stripe(request: &Request<'_>, secrets: &[&str]) -> Result<(), SignatureError> {
    const HEADER: &str = "stripe-signature";
    let (time, signatures) = timed_fields(HEADER, request.header(HEADER)?, ',', "t", "v1")?;
    request.check_time(HEADER, time, TOLERANCE)?;
    let signatures: Vec<&[u8]> = signatures.iter().map(<[u8; 32]>::as_slice).collect();
    matching(keys(secrets), &[time.as_bytes(), b".", request.body], &signatures)
}

/// A header of `name=value` fields: the one time, and every signature in hex (at least one).
fn timed_fields<'v>(
    header: &str,
    value: &'v str,
    separator: char,
    time_name: &str,
    signature_name: &str,
) -> Result<(&'v str, Vec<[u8; 32]>), SignatureError> {
    let malformed = || Malformed(header.to_owned());
    let fields: Vec<(&str, &str)> = value.split(separator).filter_map(|field| field.split_once('=')).collect();
    let all = |name| fields.iter().filter(move |(key, _)| key.trim() == name).map(|(_, value)| value.trim());
    let mut times = all(time_name);
    let time = times.next().filter(|_| times.next().is_none()).ok_or_else(malformed)?;
    let signatures: Vec<[u8; 32]> = all(signature_name).filter_map(|hex| sha256_hex(header, hex).ok()).collect();
    if signatures.is_empty() {
        return Err(malformed());
    }
    Ok((time, signatures))
}

/// `scheme: hmac`: header, digest, spelling and signed bytes as configured.
fn configured_hmac(request: &Request<'_>, secrets: &[&str], options: &HmacOptions) -> Result<(), SignatureError> {
    let malformed = || Malformed(options.header.clone());
    let value = request.header(&options.header)?;
    let value = match &options.prefix {
        Some(prefix) => value.strip_prefix(prefix.as_str()).ok_or_else(malformed)?,
        None => without_digest_name(value, options.algorithm),
    };
    let signature = decode(value.trim(), options).ok_or_else(malformed)?;
    let mut time = "";
    if let Some(header) = &options.timestamp_header {
        time = request.header(header)?;
        request.check_time(header, time, options.tolerance)?;
    }
    let signed = options.signed_bytes(time, request.body);
    let is_match = secrets.iter().any(|secret| match options.algorithm {
        Algorithm::Sha1 => is_mac::<Hmac<Sha1>>(secret.as_bytes(), &signed, &signature),
        Algorithm::Sha256 => is_mac::<Hmac<Sha256>>(secret.as_bytes(), &signed, &signature),
        Algorithm::Sha512 => is_mac::<Hmac<Sha512>>(secret.as_bytes(), &signed, &signature),
    });
    if is_match { Ok(()) } else { Err(Mismatch) }
}

/// Removes `sha256=` (or the name of the digest in use), which some senders write and some do not.
fn without_digest_name(value: &str, algorithm: Algorithm) -> &str {
    let name = match algorithm {
        Algorithm::Sha1 => "sha1=",
        Algorithm::Sha256 => "sha256=",
        Algorithm::Sha512 => "sha512=",
    };
    match value.split_at_checked(name.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(name) => rest,
        _ => value,
    }
}

fn decode(value: &str, options: &HmacOptions) -> Option<Vec<u8>> {
    let bytes = match options.algorithm {
        Algorithm::Sha1 => 20,
        Algorithm::Sha256 => 32,
        Algorithm::Sha512 => 64,
    };
    let hex = || hex::decode(value).ok();
    let base64 = || if value.contains(['-', '_']) { BASE64_URL.decode(value).ok() } else { BASE64.decode(value).ok() };
    let decoded = match options.encoding {
        Encoding::Hex => hex(),
        Encoding::Base64 => base64(),
        Encoding::Either => hex().filter(|decoded| decoded.len() == bytes).or_else(base64),
    };
    decoded.filter(|decoded| decoded.len() == bytes)
}

impl HmacOptions {
    /// The signed bytes in pieces: `signed` with its two placeholders filled, in one pass.
    fn signed_bytes<'a>(&'a self, timestamp: &'a str, body: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        let mut rest = self.signed.as_str();
        while !rest.is_empty() {
            let (piece, after) = if let Some(after) = rest.strip_prefix("{timestamp}") {
                (timestamp.as_bytes(), after)
            } else if let Some(after) = rest.strip_prefix("{body}") {
                (body, after)
            } else {
                let end = rest.char_indices().skip(1).find(|(_, character)| *character == '{');
                let (literal, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
                (literal.as_bytes(), after)
            };
            pieces.push(piece);
            rest = after;
        }
        pieces
    }
}

/// Whether any of the HMAC-SHA256 signatures over `signed` was made with any of the keys.
fn matching<'k>(
    keys: impl Iterator<Item = &'k [u8]>,
    signed: &[&[u8]],
    signatures: &[&[u8]],
) -> Result<(), SignatureError> {
    for key in keys.filter(|key| !key.is_empty()) {
        if signatures.iter().any(|signature| is_mac::<Hmac<Sha256>>(key, signed, signature)) {
            return Ok(());
        }
    }
    Err(Mismatch)
}

/// Constant time in the signature.
fn is_mac<M: Mac + KeyInit>(key: &[u8], signed: &[&[u8]], signature: &[u8]) -> bool {
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return false };
    signed.iter().for_each(|piece| mac.update(piece));
    mac.verify_slice(signature).is_ok()
}

/// Constant time, also in the lengths.
fn same_text(one: &str, other: &str) -> bool {
    Sha256::digest(one).ct_eq(&Sha256::digest(other)).into()
}

fn sha256_hex(header: &str, hex: &str) -> Result<[u8; 32], SignatureError> {
    let mut signature = [0; 32];
    hex::decode_to_slice(hex, &mut signature).map_err(|_| Malformed(header.to_owned()))?;
    Ok(signature)
}

/// SHA-256 of a body, as 64 hex digits.
pub fn body_hash(body: &[u8]) -> String {
    hex::encode(Sha256::digest(body))
}

/// Names a verified delivery, the same for every retry of it (`spec/decisions.md` §5).
///
/// Where the scheme signs an id (Svix, Standard Webhooks, Stripe's event id) only that one counts, so no unsigned header
/// can make a replay look new. Otherwise it is the provider's header, or `X-Request-ID`; an id that is longer than 200
/// bytes is replaced by its hash. Without any: `sha256:` and the hash of the signed bytes (the body, and the timestamp
/// where `X-Webhook-Signature-V2` or `scheme: hmac` sign one).
pub fn delivery_id(headers: &HeaderMap, payload: Option<&Payload>, scheme: &Scheme, body: &[u8]) -> String {
    let check = Check::of(scheme, headers);
    let event_id = |path: &str| payload?.get(path)?.as_str().map(Cow::into_owned);
    let header = |names: &[&str]| {
        names.iter().find_map(|name| {
            let value = headers.get(*name)?.to_str().ok()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        })
    };
    let id = match check {
        Some(Check::Svix) => header(&["svix-id"]),
        Some(Check::Standard) => header(&["webhook-id"]),
        Some(Check::Stripe) => event_id("id"),
        Some(Check::Slack) => event_id("event_id"),
        Some(Check::PagerDuty) => event_id("event.id"),
        Some(Check::Paddle) => event_id("event_id"),
        Some(Check::Telegram) => payload.and_then(|payload| payload.get("update_id")).map(|id| id.text().to_owned()),
        Some(Check::Twilio) => header(&["i-twilio-idempotency-token"]),
        Some(Check::Shopify) => header(&["x-shopify-webhook-id", "x-request-id"]),
        Some(Check::Linear) => header(&["linear-delivery", "x-request-id"]),
        Some(Check::Gitea) => header(&["x-forgejo-delivery", "x-gitea-delivery", "x-gogs-delivery", "x-request-id"]),
        Some(Check::Bitbucket) => header(&["x-request-uuid", "x-request-id"]),
        Some(Check::Sentry) => header(&["request-id", "x-request-id"]),
        Some(Check::Bearer | Check::Basic) => header(&["x-request-id"]),
        Some(Check::GitHub) => header(&["x-github-delivery", "x-request-id"]),
        // One event UUID may belong to several deliveries: events that were caused by a webhook inherit it.
        Some(Check::GitLab) => header(&["idempotency-key", "x-gitlab-event-uuid", "x-request-id"]),
        Some(Check::GenericV1 | Check::GenericV2 | Check::Hmac(_)) | None => header(&["x-github-delivery"])
            .or_else(|| headers.get("stripe-signature").and_then(|_| event_id("id")))
            .or_else(|| headers.get("x-slack-signature").and_then(|_| event_id("event_id")))
            .or_else(|| {
                header(&[
                    "svix-id",
                    "webhook-id",
                    "x-shopify-webhook-id",
                    "idempotency-key",
                    "x-gitlab-event-uuid",
                    "x-request-id",
                ])
            }),
    };
    match id.filter(|id| !id.trim().is_empty()) {
        Some(id) if id.len() <= MAX_ID_BYTES && !id.contains(char::is_control) => id,
        Some(id) => format!("sha256:{}", body_hash(id.as_bytes())),
        None => format!("sha256:{}", signed_hash(check, headers, body)),
    }
}

/// SHA-256 of what the signature covers.
fn signed_hash(check: Option<Check<'_>>, headers: &HeaderMap, body: &[u8]) -> String {
    let time = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map_or("", str::trim);
    let signed = match check {
        Some(Check::GenericV2) => vec![time("x-webhook-timestamp").as_bytes(), b".", body],
        Some(Check::Hmac(options)) => options.signed_bytes(options.timestamp_header.as_deref().map_or("", time), body),
        _ => vec![body],
    };
    let mut hash = Sha256::new();
    signed.iter().for_each(|piece| hash.update(piece));
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The common case, without an address.
    fn verify(
        scheme: &Scheme,
        secrets: &[SecretString],
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<(), SignatureError> {
        super::verify(scheme, secrets, Request { headers, body, url: None, now })
    }

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("name"),
                HeaderValue::from_bytes(value.as_bytes()).expect("value"),
            );
        }
        headers
    }

    fn secrets(list: &[&str]) -> Vec<SecretString> {
        list.iter().map(|secret| SecretString::from(*secret)).collect()
    }

    fn options(header: &str) -> HmacOptions {
        HmacOptions {
            header: header.to_owned(),
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Either,
            prefix: None,
            timestamp_header: None,
            signed: "{body}".to_owned(),
            tolerance: 300,
        }
    }

    fn mac(key: &str, signed: &str) -> Vec<u8> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.as_bytes()).expect("any length");
        mac.update(signed.as_bytes());
        mac.finalize().into_bytes().to_vec()
    }

    fn hex_mac(key: &str, signed: &str) -> String {
        hex::encode(mac(key, signed))
    }

    #[test]
    fn vectors() {
        let file = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/signature.json"));
        let file: Value = serde_json::from_str(file).expect("vectors");
        let mut checked = 0;
        for case in file["cases"].as_array().expect("cases") {
            let text = |key: &str| case[key].as_str().unwrap_or_default();
            let scheme = match text("scheme") {
                "hmac" => Scheme::Hmac(HmacOptions {
                    algorithm: match case["options"]["algorithm"].as_str() {
                        Some("sha1") => Algorithm::Sha1,
                        Some("sha256") => Algorithm::Sha256,
                        other => panic!("{other:?}"),
                    },
                    ..options(case["options"]["header"].as_str().expect("header"))
                }),
                // Tested with the parsing of routes.
                "config" => continue,
                name => Scheme::NAMED.into_iter().find(|(known, _)| *known == name).expect(name).1,
            };
            let list: Vec<(&str, &str)> = case["headers"]
                .as_object()
                .expect("headers")
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str().expect("value")))
                .collect();
            let keys = match &case["secret"] {
                Value::Array(list) => list.iter().map(|secret| secret.as_str().expect("secret")).collect(),
                secret => vec![secret.as_str().expect("secret")],
            };
            let body = STANDARD.decode(text("body_base64")).expect("body");
            let now = case["now"].as_i64().expect("now");
            let headers = headers(&list);
            let request = Request { headers: &headers, body: &body, url: case["url"].as_str(), now };
            let verdict = super::verify(&scheme, &secrets(&keys), request);
            assert_eq!(verdict.is_ok(), case["accept"].as_bool().expect("accept"), "{case}: {verdict:?}");
            checked += 1;
        }
        assert!(checked >= 75, "{checked} cases");
    }

    #[test]
    fn either_side_of_the_tolerance() {
        let now = 1_760_000_000;
        for (off, accept) in [(-301, false), (-300, true), (-299, true), (299, true), (300, true), (301, false)] {
            let time = (now + off).to_string();
            let signed = hex_mac("secret", &format!("{time}.{{}}"));
            let stripe = headers(&[("stripe-signature", &format!("t={time},v1={signed}"))]);
            let generic = headers(&[("x-webhook-signature-v2", &signed), ("x-webhook-timestamp", &time)]);
            let value = format!("v1,{}", STANDARD.encode(mac("secret", &format!("id.{time}.{{}}"))));
            let triple = |prefix: &str| {
                headers(&[
                    (&format!("{prefix}-id"), "id"),
                    (&format!("{prefix}-timestamp"), &time),
                    (&format!("{prefix}-signature"), &value),
                ])
            };
            for headers in [stripe, generic, triple("svix"), triple("webhook")] {
                let verdict = verify(&Scheme::Auto, &secrets(&["secret"]), &headers, b"{}", now);
                assert_eq!(verdict, if accept { Ok(()) } else { Err(Stale(301)) }, "{headers:?}");
            }
        }
    }

    #[test]
    fn absurd_times_are_refused_without_overflow() {
        for time in ["9223372036854775807", "-9223372036854775808", "99999999999999999999", "", " ", "1e9", "+5", "1.0"]
        {
            let headers = headers(&[("stripe-signature", &format!("t={time},v1={}", "0".repeat(64)))]);
            for now in [i64::MIN, 0, i64::MAX - 1_000] {
                assert!(verify(&Scheme::Stripe, &secrets(&["secret"]), &headers, b"", now).is_err(), "{time}");
            }
        }
    }

    #[test]
    fn an_empty_or_magic_key_never_verifies() {
        for key in ["", " ", "\n", INSECURE_NO_AUTH, " INSECURE_NO_AUTH "] {
            let github = headers(&[("x-hub-signature-256", &format!("sha256={}", hex_mac(key, "{}")))]);
            assert_eq!(verify(&Scheme::GitHub, &secrets(&[key]), &github, b"{}", 0), Err(NoSecret), "{key:?}");
            assert_eq!(verify(&Scheme::GitHub, &secrets(&[key, "real"]), &github, b"{}", 0), Err(Mismatch), "{key:?}");
            let gitlab = headers(&[("x-gitlab-token", key.trim())]);
            assert!(verify(&Scheme::Auto, &secrets(&[key, "real"]), &gitlab, b"{}", 0).is_err(), "{key:?}");
        }
        assert_eq!(verify(&Scheme::Auto, &[], &HeaderMap::new(), b"{}", 0), Err(NoSecret));
        for secret in ["whsec_", "whsec_QQ==", "whsec_!!!!", "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            for key in ["", "A"] {
                let value = format!("v1,{}", STANDARD.encode(mac(key, "id.0.{}")));
                let headers = headers(&[("svix-id", "id"), ("svix-timestamp", "0"), ("svix-signature", &value)]);
                assert_eq!(verify(&Scheme::Auto, &secrets(&[secret]), &headers, b"{}", 0), Err(NoSecret), "{secret}");
            }
        }
    }

    #[test]
    fn one_header_of_a_scheme_commits_to_it() {
        let good = format!("sha256={}", hex_mac("secret", "{}"));
        for other in ["svix-id", "svix-timestamp", "svix-signature"] {
            let headers = headers(&[(other, "1"), ("x-hub-signature-256", &good)]);
            assert!(matches!(verify(&Scheme::Auto, &secrets(&["secret"]), &headers, b"{}", 0), Err(Missing(_))));
        }
        let headers = headers(&[("svix-id", "1"), ("x-hub-signature-256", &good)]);
        assert_eq!(verify(&Scheme::GitHub, &secrets(&["secret"]), &headers, b"{}", 0), Ok(()), "pinned: no detection");
    }

    #[test]
    fn a_repeated_signature_header_is_refused() {
        let good = format!("sha256={}", hex_mac("secret", "{}"));
        for values in [[good.as_str(), "sha256=00"], ["sha256=00", good.as_str()], [good.as_str(), good.as_str()]] {
            let headers = headers(&values.map(|value| ("x-hub-signature-256", value)));
            let verdict = verify(&Scheme::Auto, &secrets(&["secret"]), &headers, b"{}", 0);
            assert_eq!(verdict, Err(Repeated("x-hub-signature-256".to_owned())));
        }
        let tokens = headers(&[("x-gitlab-token", "secret"), ("x-gitlab-token", "secret")]);
        assert!(verify(&Scheme::Auto, &secrets(&["secret"]), &tokens, b"{}", 0).is_err());
    }

    #[test]
    fn the_configured_header_takes_every_option() {
        let secrets = secrets(&["old", "gen"]);
        let body = "{\"a\":1}";
        let check = |options: &HmacOptions, list: &[(&str, &str)]| {
            verify(&Scheme::Hmac(options.clone()), &secrets, &headers(list), body.as_bytes(), 1_000).is_ok()
        };
        let plain = hex_mac("gen", body);
        let base64 = STANDARD.encode(mac("gen", body));

        let options = options("x-sig");
        assert!(check(&options, &[("X-Sig", &plain)]));
        assert!(check(&options, &[("x-sig", &format!("SHA256={plain}"))]));
        assert!(check(&options, &[("x-sig", base64.trim_end_matches('='))]), "padding is optional");
        assert!(!check(&options, &[("x-sig", &format!("sha1={plain}"))]));
        assert!(!check(&options, &[("x-other", &plain)]));

        let hex_only = HmacOptions { encoding: Encoding::Hex, ..options.clone() };
        assert!(check(&hex_only, &[("x-sig", &plain)]) && !check(&hex_only, &[("x-sig", &base64)]));
        let base64_only = HmacOptions { encoding: Encoding::Base64, ..options.clone() };
        assert!(check(&base64_only, &[("x-sig", &base64)]) && !check(&base64_only, &[("x-sig", &plain)]));

        let prefix = HmacOptions { prefix: Some("v0=".to_owned()), ..options.clone() };
        assert!(check(&prefix, &[("x-sig", &format!("v0={plain}"))]));
        assert!(!check(&prefix, &[("x-sig", &plain)]), "a configured prefix is required");

        let timed = HmacOptions {
            timestamp_header: Some("x-time".to_owned()),
            signed: "v0:{timestamp}:{body}{x}".to_owned(),
            tolerance: 10,
            ..options
        };
        for (time, accept) in [("990", true), ("1010", true), ("989", false), ("1011", false), ("x", false)] {
            let value = hex_mac("gen", &format!("v0:{time}:{body}{{x}}"));
            assert_eq!(check(&timed, &[("x-sig", &value), ("x-time", time)]), accept, "{time}");
        }
        let value = hex_mac("gen", &format!("v0:1000:{body}{{x}}"));
        assert!(!check(&timed, &[("x-sig", &value)]), "the timestamp is required");
        assert!(!check(&timed, &[("x-sig", &value), ("x-time", "1001")]), "the timestamp is signed");
    }

    #[test]
    fn a_body_that_contains_the_placeholders_is_not_expanded() {
        let scheme = Scheme::Hmac(HmacOptions { signed: "{body}.{timestamp}".to_owned(), ..options("x-sig") });
        let body = "{timestamp}{body}";
        let signed = headers(&[("x-sig", &hex_mac("gen", &format!("{body}.")))]);
        assert_eq!(verify(&scheme, &secrets(&["gen"]), &signed, body.as_bytes(), 0), Ok(()));
    }

    #[test]
    fn errors_carry_no_signature() {
        let expected = hex_mac("secret", "{}");
        let received = hex_mac("wrong", "{}");
        for list in [
            vec![("x-hub-signature-256", format!("sha256={received}"))],
            vec![("x-webhook-signature", received.clone())],
            vec![("stripe-signature", format!("t=0,v1={received}"))],
            vec![("x-gitlab-token", received.clone())],
        ] {
            let list: Vec<_> = list.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let error = verify(&Scheme::Auto, &secrets(&["secret"]), &headers(&list), b"{}", 0).expect_err("wrong");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(&expected) && !shown.contains(&received) && !shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn every_delivery_has_one_id() {
        let body = br#"{"id":"evt_1","event_id":"Ev1"}"#;
        let payload = Payload::parse(None, body).expect("json");
        let hash = format!("sha256:{}", body_hash(body));
        let id = |scheme: &Scheme, list: &[(&str, &str)]| delivery_id(&headers(list), Some(&payload), scheme, body);
        let request_id = ("x-request-id", "r1");
        let stripe = ("stripe-signature", "t=1,v1=00");
        for (list, expected) in [
            (&[][..], hash.as_str()),
            (&[request_id], "r1"),
            (&[("x-request-id", " ")], hash.as_str()),
            (&[request_id, ("x-github-delivery", "g1")], "g1"),
            (&[("x-hub-signature-256", "x"), ("x-github-delivery", "g1"), request_id], "g1"),
            (&[("x-hub-signature-256", "x"), ("svix-signature", "x"), ("svix-id", "s1"), request_id], "s1"),
            (&[("webhook-id", "w1"), request_id], "w1"),
            (&[stripe, request_id, ("x-github-delivery", "g1")], "evt_1"),
            (&[("x-slack-signature", "v0=00"), request_id], "Ev1"),
            (&[("x-gitlab-token", "x"), ("x-gitlab-event-uuid", "u1"), ("idempotency-key", "i1")], "i1"),
            (&[("x-gitlab-token", "x"), ("x-gitlab-event-uuid", "u1"), request_id], "u1"),
            (&[("x-shopify-webhook-id", "p1"), request_id], "p1"),
        ] {
            assert_eq!(id(&Scheme::Auto, list), expected, "{list:?}");
        }
        assert_eq!(id(&Scheme::Svix, &[("svix-id", "s1"), ("x-github-delivery", "forged")]), "s1");
        assert_eq!(id(&Scheme::Stripe, &[request_id, ("x-github-delivery", "forged")]), "evt_1");
        let without = Payload::parse(None, b"[1]").expect("json");
        let id = delivery_id(&headers(&[stripe, request_id]), Some(&without), &Scheme::Auto, b"[1]");
        assert_eq!(id, format!("sha256:{}", body_hash(b"[1]")), "an unsigned header never replaces a signed id");
    }

    #[test]
    fn ids_without_a_header_follow_the_signed_bytes() {
        let at = |time: &str, body: &[u8]| {
            let headers = headers(&[("x-webhook-signature-v2", "00"), ("x-webhook-timestamp", time)]);
            delivery_id(&headers, None, &Scheme::Auto, body)
        };
        assert_eq!(at("1", b"{}"), format!("sha256:{}", body_hash(b"1.{}")));
        assert_ne!(at("1", b"{}"), at("2", b"{}"), "two equal events at two times are two deliveries");
        assert_ne!(at("1", b"{}"), at("1", b"{ }"));
        let long = "x".repeat(5_000);
        let id = delivery_id(&headers(&[("x-request-id", &long)]), None, &Scheme::Auto, b"{}");
        assert_eq!(id, format!("sha256:{}", body_hash(long.as_bytes())));
    }

    proptest! {
        #[test]
        fn no_header_panics(
            list in prop::collection::vec((0_usize..14, prop::collection::vec(0x20_u8..=0xff, 0..60)), 0..6),
            body in prop::collection::vec(any::<u8>(), 0..50),
            now in any::<i64>(),
        ) {
            const NAMES: [&str; 14] = [
                "svix-id", "svix-timestamp", "svix-signature", "webhook-id", "webhook-timestamp", "webhook-signature",
                "x-hub-signature-256", "x-gitlab-token", "x-webhook-signature", "x-webhook-signature-v2",
                "x-webhook-timestamp", "stripe-signature", "x-github-delivery", "x-request-id",
            ];
            let mut headers = HeaderMap::new();
            for (name, value) in list {
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    headers.append(NAMES[name], value);
                }
            }
            let scheme = Scheme::Hmac(options("stripe-signature"));
            for scheme in [Scheme::Auto, Scheme::GitHub, Scheme::Stripe, Scheme::Svix, Scheme::Standard, scheme] {
                prop_assert!(verify(&scheme, &secrets(&["a long random secret"]), &headers, &body, now).is_err());
                let _ = delivery_id(&headers, Payload::parse(None, &body).ok().as_ref(), &scheme, &body);
            }
        }
    }
}

//! Webhooks: from a signed request to a stored delivery.

pub mod route;

//! Webhooks: from a signed request to a stored delivery.

pub mod json;
pub mod limit;
pub mod payload;
pub mod route;
pub mod signature;
pub mod subscriptions;
pub mod template;

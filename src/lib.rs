//! hookgate, a self-hosted messaging gateway.

pub mod agent;
pub mod clock;
pub mod config;
pub mod session;
pub mod store;
pub mod webhook;

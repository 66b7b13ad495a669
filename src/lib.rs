//! hookgate, a self-hosted messaging gateway: chats and signed webhooks in, a model or a template answers, hooks have the
//! say. `docs/architecture.md` shows the journeys.
//!
//! - [`gateway`]: what happens to a message, in order. Read this first
//! - [`webhook`]: from a signed request to a stored delivery
//! - [`agent`]: a question to its answer
//! - [`store`]: everything durable
//! - [`session`]: conversations as plain types
//! - [`config`]: `config.yaml`, `.env`, environment, typed and checked
//! - [`app`]: wires everything and runs it; the same for `main` and the tests
//! - [`console`]: the chat page and the private routes; `client` speaks to them
//! - `server`: the listeners; `status`: whether the gateway can do its job
//! - [`cli`]: the command line
//! - [`redact`], [`logging`], [`error`], [`clock`]: what the rest needs

pub mod agent;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod error;
pub mod gateway;
pub mod logging;
pub mod redact;
pub mod session;
pub mod status;
pub mod store;
pub mod webhook;

mod client;
mod files;
mod http;
mod server;

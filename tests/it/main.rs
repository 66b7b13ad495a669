//! Conversations with the parts of the gateway and with the gateway as a whole.

mod agent;
mod support;

//! Stories about the whole gateway and its durable parts.

mod store;

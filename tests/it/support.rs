//! The outside world, as the tests see it.

pub(crate) mod fake_model;

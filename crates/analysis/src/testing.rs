//! Synthetic runs for tests.

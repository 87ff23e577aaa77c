//! The cost of a context switch: two tasks, or a ring of them, pass a token on one CPU or between two.

pub(super) mod cost;
pub(crate) mod cross_cpu;
pub(super) mod one_way;
pub(super) mod ring;

pub(crate) use cost::process_switch;

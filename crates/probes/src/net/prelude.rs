//! The names that nearly every probe of the network uses.

pub(super) use kelvin_core::catalogue::PairPlacement;
pub(super) use kelvin_core::catalogue::net::{MESSAGE, SendMethod};

pub(super) use super::echo::EchoClient;
pub(super) use super::link::{Link, Protocol, SMALL_MESSAGE, message_bytes};
pub(super) use crate::os::ipc::partner_cpu;
pub(super) use crate::prelude::*;

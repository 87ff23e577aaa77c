//! Questions about the traffic control of network interfaces (rtnetlink): their queueing disciplines and classes.

use std::fs::File;
use std::io::{Read, Write};

use super::netlink::{
    HEADER_BYTES, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, error_of_message, find_attribute, take_message, u16_at,
    u32_at,
};
use crate::Result;

/// What is asked for, and by which messages it is answered: of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcQuery {
    get: u16,
    new: u16,
}

/// `RTM_GETQDISC`, `RTM_NEWQDISC`.
pub(super) const DISCIPLINES: TcQuery = TcQuery { get: 38, new: 36 };
/// `RTM_GETTCLASS`, `RTM_NEWTCLASS`.
pub(super) const CLASSES: TcQuery = TcQuery { get: 42, new: 40 };
/// `NLM_F_REQUEST`, and `NLM_F_DUMP`: all of them, because older kernels answer a request for one differently.
const DUMP_REQUEST: u16 = NLM_F_REQUEST | 0x300;
/// Bytes of `struct tcmsg`, and where in a message interface, handle and parent are.
const TCMSG_BYTES: usize = 20;
const INTERFACE_OFFSET: usize = HEADER_BYTES + 4;
const HANDLE_OFFSET: usize = HEADER_BYTES + 8;
const PARENT_OFFSET: usize = HEADER_BYTES + 12;
/// `TC_H_ROOT`: the parent of the root discipline, for all packets of the interface.
pub(super) const TC_H_ROOT: u32 = 0xffff_ffff;
/// `TCA_KIND`.
pub(super) const TCA_KIND: u16 = 1;
/// More than one answer of the kernel.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// A discipline or a class, as a message tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcNode<'m> {
    pub handle: u32,
    pub parent: u32,
    pub attributes: &'m [u8],
}

impl TcNode<'_> {
    /// What is in a message about this interface.
    fn parse(message: &[u8], interface: u32) -> Option<TcNode<'_>> {
        let [its, handle, parent] =
            [INTERFACE_OFFSET, HANDLE_OFFSET, PARENT_OFFSET].map(|place| u32_at(message, place));
        let attributes = message.get(HEADER_BYTES + TCMSG_BYTES..)?;
        (its? == interface).then_some(TcNode { handle: handle?, parent: parent?, attributes })
    }
}

/// The name of a discipline among its attributes: `tbf`.
pub(super) fn kind_name(attributes: &[u8]) -> Option<String> {
    find_attribute(attributes, TCA_KIND).map(|kind| String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned())
}

/// Asks for all of an interface, and shows each.
///
/// # Errors
/// Those of the kernel.
pub(super) fn for_each_node(
    kernel: &mut File,
    answer: &mut [u8],
    (question, interface): (TcQuery, u32),
    mut see: impl FnMut(TcNode<'_>),
) -> Result<()> {
    kernel.write_all(&request(question, interface))?;
    loop {
        let length = kernel.read(answer)?;
        let mut rest = &answer[..length];
        while let Some(message) = take_message(&mut rest) {
            match u16_at(message, 4) {
                Some(NLMSG_DONE) => return Ok(()),
                Some(NLMSG_ERROR) => return Err(error_of_message(message)),
                Some(kind) if kind == question.new => TcNode::parse(message, interface).into_iter().for_each(&mut see),
                _ => {}
            }
        }
    }
}

/// Classes are told of one interface alone; disciplines of all, whichever is named.
fn request(question: TcQuery, interface: u32) -> [u8; HEADER_BYTES + TCMSG_BYTES] {
    let mut bytes = [0; HEADER_BYTES + TCMSG_BYTES];
    bytes[..4].copy_from_slice(&((HEADER_BYTES + TCMSG_BYTES) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&question.get.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP_REQUEST.to_ne_bytes());
    bytes[INTERFACE_OFFSET..HANDLE_OFFSET].copy_from_slice(&interface.to_ne_bytes());
    bytes
}

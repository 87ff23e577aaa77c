//! Questions about the traffic control of network interfaces (rtnetlink): their queueing disciplines and classes.

use std::fs::File;
use std::io::{Read, Write};

use super::netlink::{DONE, FAILED, HEADER, REQUEST, attribute, half, message, refused, word};
use crate::Result;

/// What is asked for, and by which messages it is answered: of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    get: u16,
    new: u16,
}

/// `RTM_GETQDISC`, `RTM_NEWQDISC`.
pub(super) const DISCIPLINES: Question = Question { get: 38, new: 36 };
/// `RTM_GETTCLASS`, `RTM_NEWTCLASS`.
pub(super) const CLASSES: Question = Question { get: 42, new: 40 };
/// `NLM_F_REQUEST`, and `NLM_F_DUMP`: all of them, because older kernels answer a request for one differently.
const REQUEST_ALL: u16 = REQUEST | 0x300;
/// Bytes of `struct tcmsg`, and where in a message interface, handle and parent are.
const ABOUT: usize = 20;
const INTERFACE: usize = HEADER + 4;
const HANDLE: usize = HEADER + 8;
const PARENT: usize = HEADER + 12;
/// `TC_H_ROOT`: the parent of the root discipline, for all packets of the interface.
pub(super) const ROOT: u32 = 0xffff_ffff;
/// `TCA_KIND`.
pub(super) const KIND: u16 = 1;
/// More than one answer of the kernel.
pub(super) const BUFFER: usize = 64 << 10;

/// A discipline or a class, as a message tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'m> {
    pub handle: u32,
    pub parent: u32,
    pub attributes: &'m [u8],
}

impl Told<'_> {
    /// What is in a message about this interface.
    fn of(message: &[u8], interface: u32) -> Option<Told<'_>> {
        let [its, handle, parent] = [INTERFACE, HANDLE, PARENT].map(|place| word(message, place));
        let attributes = message.get(HEADER + ABOUT..)?;
        (its? == interface).then_some(Told { handle: handle?, parent: parent?, attributes })
    }
}

/// The name of a discipline among its attributes: `tbf`.
pub(super) fn kind(attributes: &[u8]) -> Option<String> {
    attribute(attributes, KIND).map(|kind| String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned())
}

/// Asks for all of an interface, and shows each.
///
/// # Errors
/// Those of the kernel.
pub(super) fn each(
    kernel: &mut File,
    answer: &mut [u8],
    (question, interface): (Question, u32),
    mut see: impl FnMut(Told<'_>),
) -> Result<()> {
    kernel.write_all(&request(question, interface))?;
    loop {
        let length = kernel.read(answer)?;
        let mut rest = &answer[..length];
        while let Some(message) = message(&mut rest) {
            match half(message, 4) {
                Some(DONE) => return Ok(()),
                Some(FAILED) => return Err(refused(message)),
                Some(kind) if kind == question.new => Told::of(message, interface).into_iter().for_each(&mut see),
                _ => {}
            }
        }
    }
}

/// Classes are told of one interface alone; disciplines of all, whichever is named.
fn request(question: Question, interface: u32) -> [u8; HEADER + ABOUT] {
    let mut bytes = [0; HEADER + ABOUT];
    bytes[..4].copy_from_slice(&((HEADER + ABOUT) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&question.get.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    bytes[INTERFACE..HANDLE].copy_from_slice(&interface.to_ne_bytes());
    bytes
}

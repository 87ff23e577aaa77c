//! A message sent repeatedly by each method there is, and what the kernel made of it.

use std::fs::File;
use std::os::fd::AsFd;

use kelvin_catalogue::net::SendMethod;
use kelvin_harness::Stop;
use kelvin_model::Case;
use kelvin_sys::net::sending::{self, Completed, Splicer};
use kelvin_sys::ready::readable;
use kelvin_sys::{Error, Result};

use super::link::{Link, Protocol, STUCK};

/// The sending method of a case: the plain call where it names none.
pub(super) fn method(case: &Case) -> std::result::Result<SendMethod, Stop> {
    let Some(word) = SendMethod::AXIS.word_of(case) else { return Ok(SendMethod::Send) };
    let known = || SendMethod::ALL.iter().map(|method| method.name()).collect::<Vec<_>>().join(", ");
    let unknown = || Stop::fail(format!("no sending method is called {word}; there are {}", known()));
    SendMethod::of(case).ok_or_else(unknown)
}

/// Zero-copy calls that may wait for completion before the next is made: each pins its message's pages, and the kernel allows
/// only so many (net.core.optmem_max).
const MOST_PENDING: u32 = 32;

/// What one thread sends with.
pub(crate) struct Sender(By);

enum By {
    Send { message: Vec<u8>, number: Option<u64> },
    Sendfile { file: File, bytes: usize },
    Splice { file: File, splicer: Splicer, bytes: usize },
    ZeroCopy { message: Vec<u8>, pending: u32, all: Completed },
}

impl Sender {
    /// Messages of so many bytes over a link. Those over UDP carry numbers from 1 on in their first eight bytes.
    pub(crate) fn new(method: SendMethod, link: &Link, bytes: usize) -> Result<Self> {
        let message = vec![0x5a; bytes];
        let file = || sending::memory_file(&vec![0x5a; bytes]);
        Ok(Self(match method {
            SendMethod::Send => By::Send { number: (link.protocol() == Protocol::Udp).then_some(0), message },
            SendMethod::Sendfile => By::Sendfile { file: file()?, bytes },
            SendMethod::Splice => By::Splice { file: file()?, splicer: Splicer::new(bytes)?, bytes },
            SendMethod::ZeroCopy => {
                sending::set_zero_copy(link)?;
                By::ZeroCopy { message, pending: 0, all: Completed::default() }
            }
        }))
    }

    /// Sends one message.
    #[inline(always)]
    pub(crate) fn send(&mut self, link: &Link) -> Result<()> {
        match &mut self.0 {
            By::Send { message, number } => {
                if let Some(number) = number {
                    *number += 1;
                    let head = message.first_chunk_mut().ok_or_else(|| Error::other("no room for a number"))?;
                    *head = number.to_le_bytes();
                }
                link.send(message)
            }
            By::Sendfile { file, bytes } => sending::send_file(link, file, *bytes),
            By::Splice { file, splicer, bytes } => splicer.send(link, file, *bytes),
            By::ZeroCopy { message, pending, all } => {
                if *pending >= MOST_PENDING {
                    reap(link, pending, all)?;
                }
                loop {
                    match sending::send_without_copy(link, message) {
                        Ok(calls) => {
                            *pending += calls;
                            return Ok(());
                        }
                        // No memory left for calls in flight. Over a network their completion takes a round trip and more, and
                        // a sender that retried meanwhile would look busy.
                        Err(error) if sending::is_full(&error) && *pending > 0 => {
                            let is_completed = readable(link.as_fd(), STUCK)?;
                            reap(link, pending, all)?;
                            if !is_completed {
                                return Err(error);
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// What was achieved, where that may differ from what was asked.
    pub(crate) fn achieved(mut self, link: &Link) -> Result<Option<String>> {
        match &mut self.0 {
            By::Send { .. } | By::Sendfile { .. } => Ok(None),
            By::Splice { splicer, .. } => Ok(Some(format!("a pipe of {} KiB", splicer.capacity()? >> 10))),
            By::ZeroCopy { pending, all, .. } => {
                reap(link, pending, all)?;
                let Completed { calls, copied } = all;
                Ok(Some(format!("of {calls} zero-copy calls, {copied} completed as copied")))
            }
        }
    }
}

/// Counts completed calls.
fn reap(link: &Link, pending: &mut u32, all: &mut Completed) -> Result<()> {
    let done = sending::completed(link)?;
    *pending = pending.saturating_sub(done.calls);
    all.calls += done.calls;
    all.copied += done.copied;
    Ok(())
}

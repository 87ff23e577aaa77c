//! A message sent repeatedly by each method there is, and what the kernel made of it.

use std::fs::File;
use std::os::fd::AsFd;

use kelvin_sys::net::socket_send::{self, Splicer, ZeroCopyCompletions};
use kelvin_sys::poll::wait_readable;
use kelvin_sys::{Error, Result};

use super::link::LINK_TIMEOUT;
use super::prelude::*;

/// The sending method of a case: the plain call where it names none.
pub(super) fn send_method(case: &Case) -> ProbeResult<SendMethod> {
    let Some(word) = SendMethod::AXIS.word_in(case) else { return Ok(SendMethod::Send) };
    let method_names = || SendMethod::ALL.iter().map(|method| method.name()).collect::<Vec<_>>().join(", ");
    let unknown_method =
        || ProbeError::fail(format!("no sending method is called {word}; there are {}", method_names()));
    SendMethod::of(case).ok_or_else(unknown_method)
}

/// Zero-copy calls that may wait for completion before the next is made: each pins its message's pages, and the kernel allows
/// only this many (net.core.optmem_max).
const MAX_PENDING: u32 = 32;

/// What one thread sends with.
pub(crate) enum MessageSender {
    Send { message: Vec<u8>, number: Option<u64> },
    Sendfile { file: File, bytes: usize },
    Splice { file: File, splicer: Splicer, bytes: usize },
    ZeroCopy { message: Vec<u8>, pending: u32, completions: ZeroCopyCompletions },
}

impl MessageSender {
    /// Messages of this many bytes over a link. Those over UDP carry numbers from 1 on in their first eight bytes.
    pub(crate) fn new(method: SendMethod, link: &Link, bytes: usize) -> Result<Self> {
        let message = vec![0x5a; bytes];
        let file = || socket_send::memory_file_with(&vec![0x5a; bytes]);
        Ok(match method {
            SendMethod::Send => Self::Send { number: (link.protocol() == Protocol::Udp).then_some(0), message },
            SendMethod::Sendfile => Self::Sendfile { file: file()?, bytes },
            SendMethod::Splice => Self::Splice { file: file()?, splicer: Splicer::new(bytes)?, bytes },
            SendMethod::ZeroCopy => {
                socket_send::set_zero_copy(link)?;
                Self::ZeroCopy { message, pending: 0, completions: ZeroCopyCompletions::default() }
            }
        })
    }

    /// Sends one message.
    #[inline(always)]
    pub(crate) fn send(&mut self, link: &Link) -> Result<()> {
        match self {
            Self::Send { message, number } => {
                if let Some(number) = number {
                    *number += 1;
                    let head = message.first_chunk_mut().ok_or_else(|| Error::other("no room for a number"))?;
                    *head = number.to_le_bytes();
                }
                link.send(message)
            }
            Self::Sendfile { file, bytes } => socket_send::send_file(link, file, *bytes),
            Self::Splice { file, splicer, bytes } => splicer.send(link, file, *bytes),
            Self::ZeroCopy { message, pending, completions } => {
                if *pending >= MAX_PENDING {
                    reap_completions(link, pending, completions)?;
                }
                loop {
                    match socket_send::send_without_copy(link, message) {
                        Ok(calls) => {
                            *pending += calls;
                            return Ok(());
                        }
                        // No memory left for calls in flight. Over a network their completion takes a round trip and more, and
                        // a sender that retried meanwhile would look busy.
                        Err(error) if socket_send::is_queue_full(&error) && *pending > 0 => {
                            let is_completed = wait_readable(link.as_fd(), LINK_TIMEOUT)?;
                            reap_completions(link, pending, completions)?;
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

    /// What was achieved, where that may differ from what was requested.
    pub(crate) fn describe_achieved(self, link: &Link) -> Result<Option<String>> {
        match self {
            Self::Send { .. } | Self::Sendfile { .. } => Ok(None),
            Self::Splice { splicer, .. } => Ok(Some(format!("a pipe of {} KiB", splicer.capacity()? >> 10))),
            Self::ZeroCopy { mut pending, mut completions, .. } => {
                reap_completions(link, &mut pending, &mut completions)?;
                let ZeroCopyCompletions { calls, copied } = completions;
                Ok(Some(format!("of {calls} zero-copy calls, {copied} completed as copied")))
            }
        }
    }
}

/// Counts completed calls.
fn reap_completions(link: &Link, pending: &mut u32, completions: &mut ZeroCopyCompletions) -> Result<()> {
    let batch = socket_send::take_completions(link)?;
    *pending = pending.saturating_sub(batch.calls);
    completions.calls += batch.calls;
    completions.copied += batch.copied;
    Ok(())
}

//! When what was sent over a socket left for the network: a call that sends also wakes up who waits for it on this machine, and ends
//! later.

use std::os::fd::AsFd;

use super::set_option;
use super::socket_send::next_queued_error;
use crate::Result;

/// Has the kernel keep when each following call's last byte leaves, until [`last_departure`] is asked for it.
///
/// # Errors
/// Those of setsockopt.
pub fn enable(socket: &impl AsFd) -> Result<()> {
    timestamping(socket, libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_TSONLY)
}

/// When the last byte left of which the kernel has kept it, in nanoseconds of CLOCK_REALTIME, and no others are kept from now on;
/// none if none has left since it was asked to.
///
/// # Errors
/// Those of setsockopt.
pub fn last_departure(socket: &impl AsFd) -> Result<Option<u64>> {
    // Set before it was sent, the flag by which the kernel tells would have every arrival tell its time twice.
    timestamping(socket, libc::SOF_TIMESTAMPING_SOFTWARE)?;
    let last = std::iter::from_fn(|| next_message(socket)).flatten().max();
    timestamping(socket, 0)?;
    Ok(last)
}

fn timestamping(socket: &impl AsFd, flags: libc::c_uint) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// The time of the next packet that left; none where a message of the queue tells none.
fn next_message(socket: &impl AsFd) -> Option<Option<u64>> {
    next_queued_error(socket, |kind| kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)).ok()?.map(|time| {
        // SAFETY: a message of that kind begins with a timespec.
        let time = time.map(|data| unsafe { std::ptr::read_unaligned(data.as_ptr().cast::<libc::timespec>()) });
        time.map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    })
}

/// For how many nanoseconds what left at that time has been on its way; nothing if the clock was set back.
pub fn time_since(left: u64) -> Option<u64> {
    crate::clock::nanoseconds(libc::CLOCK_REALTIME).checked_sub(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::nanoseconds;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn departure_falls_within_send() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        super::super::rx_timestamp::enable(&near).unwrap();
        near.write_all(b"before").unwrap();
        enable(&near).unwrap();
        assert_eq!(last_departure(&near).unwrap(), None, "nothing was sent since");
        enable(&near).unwrap();
        near.write_all(b"first").unwrap();
        let before = nanoseconds(libc::CLOCK_REALTIME);
        near.write_all(b"second").unwrap();
        let after = nanoseconds(libc::CLOCK_REALTIME);
        let left = last_departure(&near).unwrap().unwrap();
        assert!((before..=after).contains(&left), "{before} {left} {after}");
        assert!(time_since(left).is_some_and(|ago| ago >= after - left) && time_since(u64::MAX).is_none());
        near.write_all(b"third").unwrap();
        assert_eq!(last_departure(&near).unwrap(), None, "no others are kept");
        // What comes is read as before.
        far.write_all(b"answer").unwrap();
        let mut answer = [0; 6];
        near.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}

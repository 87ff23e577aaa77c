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
    // Set before it was sent, the flag by which the kernel reports it would report the time of every arrival twice.
    timestamping(socket, libc::SOF_TIMESTAMPING_SOFTWARE)?;
    let last = std::iter::from_fn(|| next_message(socket)).flatten().max();
    timestamping(socket, 0)?;
    Ok(last)
}

fn timestamping(socket: &impl AsFd, flags: libc::c_uint) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// The time of the next packet that left; none where a message of the queue has none.
fn next_message(socket: &impl AsFd) -> Option<Option<u64>> {
    next_queued_error(socket, |kind| kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)).ok()?.map(|time| {
        // SAFETY: a message of that kind begins with a timespec.
        let time = time.map(|data| unsafe { std::ptr::read_unaligned(data.as_ptr().cast::<libc::timespec>()) });
        time.map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    })
}

/// For how many nanoseconds what left at that time has been on its way; nothing if the clock was set back.
pub fn time_since(departure: u64) -> Option<u64> {
    crate::clock::nanoseconds(libc::CLOCK_REALTIME).checked_sub(departure)
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
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        super::super::rx_timestamp::enable(&client).unwrap();
        client.write_all(b"before").unwrap();
        enable(&client).unwrap();
        assert_eq!(last_departure(&client).unwrap(), None, "nothing was sent since");
        enable(&client).unwrap();
        client.write_all(b"first").unwrap();
        let before = nanoseconds(libc::CLOCK_REALTIME);
        client.write_all(b"second").unwrap();
        let after = nanoseconds(libc::CLOCK_REALTIME);
        let departure = last_departure(&client).unwrap().unwrap();
        assert!((before..=after).contains(&departure), "{before} {departure} {after}");
        assert!(time_since(departure).is_some_and(|age| age >= after - departure) && time_since(u64::MAX).is_none());
        client.write_all(b"third").unwrap();
        assert_eq!(last_departure(&client).unwrap(), None, "no others are kept");
        // What comes is read as before.
        server.write_all(b"answer").unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}

//! Connections that a client opens and closes one after the other, each answered once.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

use kelvin_sys::net;
use kelvin_sys::ready::readable;

use super::{QUIET, Served, client, is_equal, is_in_time, late, listen, ready, said_end};
use crate::address::is_same_host;
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::limits::Limits;
use crate::message::Cookie;
use crate::{Error, Result};

/// Accepts connections and answers each, until the client ends the test; how many there were.
pub fn accept_all(channel: &mut Channel, limits: &Limits, served: &Served<'_>) -> Result<u64> {
    let listener = listen(channel)?;
    listener.set_nonblocking(true).map_err(Error::call("listen for the test"))?;
    let address = listener.local_addr().map_err(Error::call("see the address"))?;
    let cookie = ready(channel, address, limits)?;
    let client = client(channel)?;
    let begun = Instant::now();
    let (mut answered, mut last, mut looked) = (0, begun, begun);
    loop {
        // One that was gone before it was accepted is none.
        if readable(listener.as_fd(), QUIET).map_err(Error::call("wait"))?
            && let Ok((mut stream, from)) = listener.accept()
            && is_same_host(from, client)
        {
            let deadline = Deadline::within(limits.handshake);
            // One without the cookie is no part of the test, and costs it no more than this time.
            answered += u64::from(answer(&mut stream, &cookie, &deadline).is_ok());
            last = Instant::now();
        }
        // However many others connect.
        if looked.elapsed() >= QUIET {
            if said_end(channel, limits)? {
                return Ok(answered);
            }
            if last.elapsed() > limits.idle {
                return Err(late(limits));
            }
            served.look();
            is_in_time(begun, limits)?;
            looked = Instant::now();
        }
    }
}

/// Returns the cookie, and resets the connection once the client has closed it, which frees the client's port at once instead
/// of after a minute.
fn answer(stream: &mut TcpStream, cookie: &Cookie, deadline: &Deadline) -> Result<()> {
    const DOING: &str = "begin with the cookie";
    net::reset_on_close(stream).map_err(Error::call("set up the test"))?;
    stream.set_nodelay(true).map_err(Error::call("set up the test"))?;
    let mut said = Cookie::default();
    deadline.fill(stream, &mut said, DOING)?;
    if !is_equal(&said, cookie) {
        return Err(Error::Refused("another cookie".into()));
    }
    deadline.drain(stream, cookie, "read the cookie")?;
    match deadline.fill(stream, &mut [0], "close the connection") {
        Err(Error::Gone) => Ok(()),
        Ok(()) => Err(Error::Refused("more than the cookie".into())),
        Err(error) => Err(error),
    }
}

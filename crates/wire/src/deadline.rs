//! Reading and writing until a deadline: a slow sender of single bytes cannot block anybody.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::error::is_late;
use crate::{Error, Result};

/// A transport with a time limit for each call.
pub trait Connection: Read + Write {
    /// Limits each later call of read or write to this time.
    ///
    /// # Errors
    /// A failed system call.
    fn wait_at_most(&mut self, time: Duration) -> io::Result<()>;
}

impl Connection for TcpStream {
    fn wait_at_most(&mut self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// A deadline, and how far away it was when it was set.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    whole: Duration,
}

impl Deadline {
    /// So much from now.
    pub fn within(whole: Duration) -> Self {
        Self { end: Instant::now() + whole, whole }
    }

    /// The time left; an error if there is none.
    ///
    /// # Errors
    /// [`Error::Late`], which names what was waited for.
    pub fn left(&self, doing: &'static str) -> Result<Duration> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(self.late(doing)),
            left => Ok(left),
        }
    }

    fn late(&self, doing: &'static str) -> Error {
        Error::Late { doing, seconds: self.whole.as_secs_f64() }
    }

    /// Fills a buffer from a stream.
    ///
    /// # Errors
    /// [`Error::Gone`] if the stream ends before, [`Error::Late`], or a failed call.
    pub fn fill(&self, stream: &mut impl Connection, buffer: &mut [u8], doing: &'static str) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            stream.wait_at_most(self.left(doing)?).map_err(Error::call("set the time to wait"))?;
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(Error::Gone),
                Ok(count) => filled += count,
                Err(error) => self.pass(error, doing)?,
            }
        }
        Ok(())
    }

    /// Writes all of a buffer to a stream.
    ///
    /// # Errors
    /// [`Error::Gone`] if nobody reads it any more, [`Error::Late`], or a failed call.
    pub fn drain(&self, stream: &mut impl Connection, mut buffer: &[u8], doing: &'static str) -> Result<()> {
        while !buffer.is_empty() {
            stream.wait_at_most(self.left(doing)?).map_err(Error::call("set the time to wait"))?;
            match stream.write(buffer) {
                Ok(count) => buffer = &buffer[count..],
                Err(error) => self.pass(error, doing)?,
            }
        }
        Ok(())
    }

    /// Retries an interrupted call, unless this process was asked to stop; one whose time was over is late.
    fn pass(&self, error: io::Error, doing: &'static str) -> Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted if kelvin_sys::interrupt::requested().is_none() => Ok(()),
            _ if is_late(&error) => Err(self.late(doing)),
            _ => Err(Error::call(doing)(error)),
        }
    }
}

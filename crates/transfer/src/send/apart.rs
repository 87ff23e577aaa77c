//! Connections of a sender that carry a file each, where that is asked for.

use std::net::SocketAddr;

use kelvin_wire::secret::Secret;

use super::joining::Door;
use super::{Sender, Sending};
use crate::Result;
use crate::channel::{Channel, Stream};
use crate::load::timed;
use crate::message::{FromSender, Join, Number};

impl Sender {
    /// Has each file go over a connection of its own, which joins the session.
    pub(super) fn connect_for_each(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let (session, door) = (self.session()?, Door::new(peer, secret, self.manner.settings.plain));
        self.another = Some(Box::new(move |file| {
            let mut channel = door.connect()?;
            channel.send(&FromSender::Join(Join { session, file: Some(file) }))?;
            Ok(channel)
        }));
        Ok(())
    }
}

/// Makes a connection for the content of a file.
pub(super) type Another<S> = Box<dyn Fn(Number) -> Result<Channel<S>>>;

/// Most files that have connections of their own and no verdict: with more, the receiver would hold more than it works on.
const AHEAD: usize = 4;

impl<S: Stream> Sending<'_, S> {
    /// Has a file go over a connection of its own, if each does.
    pub(super) fn begin_apart(&mut self, number: usize) -> Result<()> {
        let Some(another) = self.another.take() else { return Ok(()) };
        while !self.may_not_listen() || self.is_far_ahead() {
            let message = self.channel.receive()?;
            self.hear(message)?;
        }
        let file = number as Number;
        let own = timed(&mut self.channel.times.connection, || another(file))?;
        self.another = Some(another);
        // It joins first, so that the receiver need not wait for it.
        self.channel.send(&FromSender::Apart { file })?;
        self.apart.begin(own, self.channel);
        Ok(())
    }

    /// Whether so many files have no verdict. Their connections are kept for a while after it: closed by the other end first, they leave
    /// this one its port.
    fn is_far_ahead(&mut self) -> bool {
        if self.ending.len() == AHEAD {
            self.ending.pop_front_if(|(number, _)| !self.unjudged.contains_key(number));
        }
        self.ending.len() == AHEAD
    }

    /// Ends the connection of a file.
    pub(super) fn end_apart(&mut self, number: usize) -> Result<()> {
        if self.another.is_none() {
            return Ok(());
        }
        self.ways.finish()?;
        self.ways.leave_socket();
        self.apart.or(self.channel).send(&FromSender::End)?;
        self.ending.extend(self.apart.end(self.channel).map(|own| (number, own)));
        Ok(())
    }
}

//! Connections of a sender that carry a file each, where that is asked for.

use std::net::SocketAddr;

use crate::wire::secret::Secret;

use super::extra_streams::StreamConnector;
use super::{SendSession, Sender};
use crate::Result;
use crate::message::{EntryNumber, JoinRequest, SenderMessage};
use crate::secure_channel::{SecureChannel, TransferStream};
use crate::stage_times::add_elapsed;

impl Sender {
    /// Has each file go over a connection of its own, which joins the session.
    pub(super) fn connect_for_each(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let (session, door) =
            (self.request_session()?, StreamConnector::new(peer, secret, self.options.settings.plain));
        self.connect_for_file = Some(Box::new(move |file| {
            let mut channel = door.connect()?;
            channel.send(&SenderMessage::Join(JoinRequest { session, file: Some(file) }))?;
            Ok(channel)
        }));
        Ok(())
    }
}

/// Makes a connection for the content of a file.
pub(super) type ConnectForFile<S> = Box<dyn Fn(EntryNumber) -> Result<SecureChannel<S>>>;

/// Most files that have connections of their own and no verdict: with more, the receiver would hold more than it works on.
const MAX_UNACKED_CONNECTIONS: usize = 4;

impl<S: TransferStream> SendSession<'_, S> {
    /// Has a file go over a connection of its own, if each does.
    pub(super) fn open_file_connection(&mut self, number: usize) -> Result<()> {
        let Some(another) = self.connect_for_file.take() else { return Ok(()) };
        while !self.can_bypass_channel() || self.is_far_ahead() {
            let message = self.channel.receive()?;
            self.on_message(message)?;
        }
        let file = number as EntryNumber;
        let own = add_elapsed(&mut self.channel.times.connection, || another(file))?;
        self.connect_for_file = Some(another);
        // It joins first, so that the receiver need not wait for it.
        self.channel.send(&SenderMessage::FileConnection { file })?;
        self.file_connection.open(own, self.channel);
        Ok(())
    }

    /// Whether so many files have no verdict. Their connections are kept for a while after it: closed by the other end first, they leave
    /// this one its port.
    fn is_far_ahead(&mut self) -> bool {
        if self.closing.len() == MAX_UNACKED_CONNECTIONS {
            self.closing.pop_front_if(|(number, _)| !self.unacked.contains_key(number));
        }
        self.closing.len() == MAX_UNACKED_CONNECTIONS
    }

    /// Ends the connection of a file.
    pub(super) fn close_file_connection(&mut self, number: usize) -> Result<()> {
        if self.connect_for_file.is_none() {
            return Ok(());
        }
        self.methods.finish()?;
        self.methods.reset_socket();
        self.file_connection.channel_or(self.channel).send(&SenderMessage::End)?;
        self.closing.extend(self.file_connection.close(self.channel).map(|own| (number, own)));
        Ok(())
    }
}

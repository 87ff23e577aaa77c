//! Round trip of a small message to another host beside a saturating stream: the cost of the buffers between them.

use kelvin_catalogue::net::{PEER_LOADED, SendMethod};
use kelvin_harness::{Bench, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, NoPrediction};
use kelvin_wire::message::Direction;
use kelvin_wire::sockets::Sockets;

use super::streams::{MESSAGE, Wanted, end, links, moved};
use super::watched::{Moving, Watched, busy, busy_words};
use super::{AGENT, client, over, stopped, told};
use crate::net::echo::Echo;
use crate::net::link::Link;
use crate::net::messages::SMALL;
use kelvin_sys::spawn::Thread;

pub(in crate::net) static PROBE: Probe = Probe {
    id: PEER_LOADED.id.as_str(),
    summary: "Round trip of a small message to another host beside a saturating stream (--peer HOST)",
    kind: ProbeKind::Study,
    method: Method {
        how: "A stream goes to `kelvin agent` on another host as in net.peer.bandwidth. When its rate no longer rises, \
              messages of 64 bytes go over their own connection and back, as in net.peer.rtt. The agent counts the \
              stream's bytes meanwhile, and their rate is noted; a stream that stood still fails the round.",
        prediction: "None: no host knows how deep the buffers of the network are. Compared with net.peer.rtt it shows \
                     their cost.",
        not_for: "A network that is not saturated; requests that share the stream's connection.",
        pitfalls: &[
            "A congestion control that keeps the buffers short (BBR) or long (CUBIC): the stream's is noted.",
            "A stream that does not saturate yet.",
            AGENT,
        ],
        sources: &["Gettys and Nichols: Bufferbloat, ACM Queue 9(11), 2011", "Flent, the RRUL test"],
    },
    metrics: &[&PEER_LOADED],
    inputs: &[],
    cases: |_, _| vec![Case::new()],
    run,
    predict: |_, _, _| Err(NoPrediction::because("no host knows how deep the buffers of the network are")),
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let (mut filling, mut asking) = (client(bench)?, client(bench)?);
    let own = asking.own();
    let mut stream = filling.streams(Direction::ToAgent, 1, &Sockets::default()).map_err(stopped)?;
    let mut echo = asking.echo_tcp(SMALL as u32).map_err(stopped)?;
    let links = links(&mut stream)?;
    let mut messages = Echo::over(Link::Tcp(echo.socket().try_clone()?), SMALL as usize)?;
    let moving = Moving::default();
    let wanted =
        Wanted { direction: Direction::ToAgent, streams: 1, way: SendMethod::Send, message: MESSAGE, windows: 1 };
    let windows = std::thread::scope(|scope| {
        let sender = Thread::named("sender").start_in(scope, || moved(&links[0], &wanted, &moving))?;
        let mut watched = Watched::begin(&mut stream, &moving, wanted.direction, &links);
        let timed = watched.settle().and_then(|begun| {
            bench.time_each([&PEER_LOADED], |clock| Ok([messages.timed(clock)?]))?;
            Ok([begun, watched.look()?])
        });
        end(&moving, &links, wanted.direction);
        sender.join().map_err(|_| Stop::fail("the sender panicked"))??;
        timed
    })?;
    let carried = windows[1].rate_since(&windows[0]);
    if carried <= 0.0 {
        return Err(Stop::fail("no bytes of the stream arrived while round trips were timed: there was no load"));
    }
    let known = links[0].describe()?;
    bench.note_on_last(format!("the stream carried {:.1} MB/s meanwhile; {known}", carried / 1e6));
    if let Some(busy) = busy(&windows) {
        bench.note_on_last(busy_words(&busy));
    }
    stream.finish().map_err(stopped)?;
    drop(messages);
    let seen = echo.finish().map_err(stopped)?;
    bench.note_on_last(told(&seen, 2));
    bench.note_on_last(over(own, &seen));
    Ok(())
}

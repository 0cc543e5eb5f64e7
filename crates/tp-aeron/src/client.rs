//! A connection to a media driver.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rusteron_client::bindings as c;

use crate::adding::Adding;
use crate::cnc::{check_writable, driver_status};
use crate::conductor::{ConductorError, Context, ErrorLog};
use crate::counters::Counter;
use crate::error::{Error, aeron_error, last_error};
use crate::lifetime::Core;
use crate::process::with_signals_blocked;
use crate::publication::{ExclusivePublication, Publication};
use crate::subscription::{AssemblyLimits, Subscription};

/// How a client runs.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The Aeron directory of the media driver.
    pub dir: String,
    /// Shown by Aeron's tools beside the client's id; at most 100 bytes.
    pub name: String,
    /// A media driver that shows no life for this long is dead.
    pub driver_timeout: Duration,
    /// How often the client shows life and looks for the driver's.
    pub keepalive_interval: Duration,
    /// The longest time that the client's thread sleeps between two looks. It comes near that step by step, so that
    /// what is asked in a row is answered fast while an idle client costs next to nothing.
    pub idle_sleep: Duration,
}

/// A client of a media driver. The last clone that is dropped, with all publications, subscriptions and counters made
/// through it, closes it.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    /// Connects to the media driver of a directory, which must be alive now.
    ///
    /// # Errors
    /// [`Error::NoMediaDriver`] tells what was found instead of a live media driver.
    pub fn connect(options: &ClientOptions) -> Result<Self, Error> {
        // Asked here, with plain reads: the C code maps and trusts the file, and waits without end in some states.
        let status = driver_status(&options.dir)?;
        if !status.is_alive(options.driver_timeout) {
            return Err(Error::NoMediaDriver { dir: options.dir.clone(), reason: status.why_dead() });
        }
        check_writable(&options.dir)?;
        let errors = Arc::new(ErrorLog::default());
        let context = Context::new(options, &errors)?;
        let mut aeron = ptr::null_mut();
        // SAFETY: the context is configured; on success the client borrows it until it is closed.
        if unsafe { c::aeron_init(&mut aeron, context.raw.as_ptr()) } < 0 {
            let (_, reason) = last_error();
            // Not closed: in this state the context may name a mapping that was given back already, and giving it
            // back twice could hit a mapping that another thread made in between.
            std::mem::forget((context, errors));
            return Err(Error::NoMediaDriver { dir: options.dir.clone(), reason });
        }
        // SAFETY: the client was initialised just now. Its thread inherits the blocked signals.
        if with_signals_blocked(|| unsafe { c::aeron_start(aeron) }) < 0 {
            let error = aeron_error("starting the Aeron client's thread");
            // SAFETY: nobody else has seen it.
            unsafe { c::aeron_close(aeron) };
            return Err(error);
        }
        let aeron = NonNull::new(aeron).expect("a started client");
        Ok(Self { core: Arc::new(Core::new(aeron, context, errors, &options.dir)) })
    }

    /// The Aeron directory.
    pub fn dir(&self) -> &str {
        &self.core.dir
    }

    /// The id under which the media driver knows this client.
    pub fn client_id(&self) -> i64 {
        self.core.client_id
    }

    /// Whether it was closed, by its owner or because the media driver is gone.
    pub fn is_closed(&self) -> bool {
        // SAFETY: the pointer is valid while with_aeron runs the call.
        self.core.with_aeron(|aeron| Ok(unsafe { c::aeron_is_closed(aeron) })).unwrap_or(true)
    }

    /// What the client's thread ran into lately, oldest first. Forgets what it returns.
    pub fn take_errors(&self) -> Vec<ConductorError> {
        if !self.core.owner.is_current() {
            return Vec::new();
        }
        self.core.errors.take()
    }

    /// Says why the client can't be used any more, if so.
    ///
    /// # Errors
    /// [`Error::NoMediaDriver`] or [`Error::ClientLost`] after the client gave up, [`Error::Closed`] after `close`.
    pub fn check(&self) -> Result<(), Error> {
        self.core.with_aeron(|aeron| {
            // SAFETY: the pointer is valid while with_aeron runs the call.
            if unsafe { c::aeron_is_closed(aeron) } { Err(self.core.lost()) } else { Ok(()) }
        })
    }

    /// Starts to add an exclusive publication, which only this handle writes to.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn add_exclusive_publication(
        &self,
        channel: &str,
        stream_id: i32,
    ) -> Result<Adding<ExclusivePublication>, Error> {
        Adding::start(&self.core, channel, (), |aeron, channel, pending| {
            // SAFETY: valid pointers, see Adding::start; the channel is copied.
            unsafe { c::aeron_async_add_exclusive_publication(pending, aeron, channel, stream_id) }
        })
    }

    /// Starts to add a publication that other clients may share.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn add_publication(&self, channel: &str, stream_id: i32) -> Result<Adding<Publication>, Error> {
        Adding::start(&self.core, channel, (), |aeron, channel, pending| {
            // SAFETY: as above.
            unsafe { c::aeron_async_add_publication(pending, aeron, channel, stream_id) }
        })
    }

    /// Starts to add a subscription.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn add_subscription(
        &self,
        channel: &str,
        stream_id: i32,
        limits: AssemblyLimits,
    ) -> Result<Adding<Subscription>, Error> {
        self.check()?;
        let log = self.core.new_image_log();
        let clientd = log.as_clientd();
        Adding::start(&self.core, channel, (log, limits), |aeron, channel, pending| {
            // SAFETY: as above; the client keeps the log behind clientd alive until it is retired.
            unsafe {
                c::aeron_async_add_subscription(
                    pending,
                    aeron,
                    channel,
                    stream_id,
                    Some(crate::images::on_available_image),
                    clientd,
                    Some(crate::images::on_unavailable_image),
                    clientd,
                )
            }
        })
    }

    /// Starts to add a counter. Key and label are as [`Counter`] says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key or label that is too long; else as for [`Self::check`].
    pub fn add_counter(&self, type_id: i32, key: &[u8], label: &str) -> Result<Adding<Counter>, Error> {
        crate::counters::check_sizes(key, label)?;
        Adding::start(&self.core, "", (), |aeron, _channel, pending| {
            // SAFETY: as above; key and label are copied.
            unsafe {
                c::aeron_async_add_counter(
                    pending,
                    aeron,
                    type_id,
                    key.as_ptr(),
                    key.len(),
                    label.as_ptr().cast(),
                    label.len(),
                )
            }
        })
    }

    /// Closes the client and everything made through it; takes some milliseconds. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.core.owner.check("Aeron client")?;
        self.core.close();
        Ok(())
    }
}

//! How long to sleep between two looks.

use std::time::Duration;

/// Pauses that double from the shortest to the longest while nothing comes.
pub(super) struct Pacing {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Pacing {
    pub(super) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: shortest }
    }

    /// The pause after a look; `soon` says that more is likely to come.
    pub(super) fn pause(&mut self, soon: bool) -> Duration {
        let pause = if soon { self.shortest } else { self.next };
        self.next = (2 * pause).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_nothing_comes_and_start_over_when_something_does() {
        let us = Duration::from_micros;
        let mut pacing = Pacing::new(us(100), us(350));
        let pauses: Vec<_> =
            [false, false, false, false, true, true, false].map(|soon| pacing.pause(soon)).into();
        assert_eq!(pauses, [us(100), us(200), us(350), us(350), us(100), us(100), us(200)]);
    }
}

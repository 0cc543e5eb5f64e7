//! Shared-memory rings.

// Package embedded is the control plane and the agent of one machine, each alone or both in one
// process: it opens the data directory, puts the parts together, runs them and takes them apart
// again. It decides nothing about workflows, and reads no command line and no environment of its
// own.
//
// One process uses a data directory at a time; a lock that ends with the process sees to that. The
// agent of Up talks to the control plane through the same client and handler as one elsewhere,
// in memory.
package embedded

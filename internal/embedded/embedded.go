// Package embedded is the control plane and the agent of one machine, each alone or both in one
// process: it opens the data directory, builds the parts, runs them and closes them again. It decides
// nothing about workflows, and does not read the command line or the environment itself.
//
// One process uses a data directory at a time: it holds a lock that ends with the process. The agent of
// Up talks to the control plane through the same client and handler as any other agent, in memory.
package embedded

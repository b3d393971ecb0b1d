// Command hello is what the builder is tested with.
package main

import "os"

var version string

func main() { _, _ = os.Stdout.WriteString(version) }

// Command shell stands in for busybox: it names its programs, and says one thing as any of them.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--list" {
		fmt.Println("busybox")
		fmt.Println("sh")
		return
	}
	fmt.Println("the shell of a made image ran")
}

// Command eater is the shell of an image for tests: it takes memory until the system kills it.
package main

import "fmt"

func main() {
	fmt.Println("the engine is hungry")
	var all [][]byte
	for range 256 { // 4 GiB, if no limit holds it
		piece := make([]byte, 16<<20)
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
		all = append(all, piece)
	}
	fmt.Println("the engine had enough", len(all))
}

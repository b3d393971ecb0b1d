package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Render returns a settings file with these values, by key and each as a flag would give it, and checks it as Load
// does. name is the file's in its mistakes. The file begins with the address of its schema.
func Render(use Use, name string, given map[string]string) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range keys {
		value, ok := given[k.name]
		if !ok {
			continue
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
		if k.sep != "" {
			node = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, one := range k.split(value) {
				node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: one})
			}
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: k.name}, node)
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	l := loader{use: use, where: map[string]string{}}
	l.out.Config = Default()
	l.yaml(name, text, false)
	l.together()
	schema := strings.TrimRight(given["service_url"], "/") + SchemaPath
	return append([]byte("# yaml-language-server: $schema="+schema+"\n"), text...), l.mistakes.Err()
}

# SPDX-License-Identifier: Apache-2.0
# Evaluates vm/Vagrantfile for a provider that need not be installed, and prints as JSON what it asks for: a stand-in
# for Vagrant that takes down every setting and every call.
require "json"

class Recorder
  def initialize = @said = []
  attr_reader :said

  def vmx = (@vmx ||= Hash.new).tap { |hash| @said << ["vmx", hash] unless @said.any? { |name, _| name == "vmx" } }

  def method_missing(name, *words, **named, &_block)
    @said << [name.to_s, *words, *(named.empty? ? [] : [named])]
    self
  end

  def respond_to_missing?(*) = true
end

class Machine < Recorder
  def vm = self
  def ssh = self

  def provider(name)
    return unless name.to_s == ARGV[1]

    yield @provider = Recorder.new
  end

  def result = { common: @said, provider: @provider&.said }
end

module Vagrant
  def self.configure(_version)
    machine = Machine.new
    yield machine
    puts JSON.generate(machine.result)
  end
end

load ARGV[0]

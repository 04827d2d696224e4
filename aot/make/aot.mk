# For GNU make: rules that make bundles, again whenever one of their models changes, or a makefile, where their options are.
#
#   include $(shell aot where make)
#   $(eval $(call aot_bundle,digits,digits.tflite,--cpu cortex-m4))
#   firmware.elf: main.c $(digits_OBJECTS) $(digits_HEADER)
#           $(CC) $(CFLAGS) $(digits_CFLAGS) main.c $(digits_OBJECTS) -o $@
#
# aot_bundle(NAME,MODEL...,OPTIONS) defines NAME_OBJECTS, NAME_HEADER, NAME_CFLAGS (where the header is) and NAME_WEIGHTS (the file, where
# weights are separate). NAME is a C identifier with single underscores. What includes the header has to depend on it. AOT is the command,
# AOT_OUT the folder of all bundles.

AOT ?= aot
AOT_OUT ?= build/aot

define aot_bundle
$(1)_OBJECTS := $$(AOT_OUT)/$(1)/$(1).o
$(1)_HEADER := $$(AOT_OUT)/$(1)/$(1).h
$(1)_CFLAGS := -I$$(AOT_OUT)/$(1)
$(1)_WEIGHTS := $$(AOT_OUT)/$(1)/$(1).weights.bin
$(1)_COMMAND = $$(AOT) bundle $(2) --name $(1) $(3) -o $$(AOT_OUT)/$(1)
$$($(1)_OBJECTS): $(2) $(MAKEFILE_LIST)
	@mkdir -p $$(@D)
	$$($(1)_COMMAND)
$$($(1)_HEADER): $$($(1)_OBJECTS)
	@test -f $$@ || $$($(1)_COMMAND)
endef

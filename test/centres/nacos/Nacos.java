package dev.outrider.test;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.scheduling.annotation.EnableScheduling;

/** Runs the Nacos server with only its configuration centre: no naming, no console. */
@SpringBootApplication(scanBasePackages = "com.alibaba.nacos")
@EnableScheduling
public class Nacos {
  public static void main(String[] args) {
    SpringApplication.run(Nacos.class, args);
  }
}
